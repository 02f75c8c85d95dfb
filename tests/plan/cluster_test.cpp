#include "src/plan/cluster/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.hpp"
#include "src/plan/cost/costs.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::plan {
namespace {

/// Two ranks a node; lossless links of 100 and 10 GB/s.
Cluster pairs(double node_us, double network_us) {
  Cluster cluster = cluster_preset("dgx-h100");
  cluster.ranks_per_node = 2;
  cluster.node = {100, 1, node_us};
  cluster.network = {10, 1, network_us};
  return cluster;
}

constexpr double gigabyte = 1e9;

TEST(CollectiveTime, OfLargeDataIsThatOfTheBusiestLink) {
  const Cluster cluster = pairs(0, 0);
  // A ring of n ranks carries 2 (n - 1) / n of an all-reduce's bytes over each link.
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_reduce, gigabyte, {2, 2}), 10);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_reduce, gigabyte, {4, 1}), 150);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::reduce_scatter, gigabyte, {4, 1}), 75);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_gather, gigabyte, {4, 1}), 75);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::send_receive, gigabyte, {2, 1}), 100);
  // Both ranks of a node contribute their network bandwidth.
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_reduce, gigabyte, {4, 2}), 75);
  EXPECT_EQ(collective_ms(cluster, Collective::all_reduce, gigabyte, {1, 1}), 0);
  // Each rank keeps 1/4 of an all-to-all. With two ranks on a node, half of the bytes leave it at 10 GB/s a rank.
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_to_all, gigabyte, {4, 4}), 7.5);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_to_all, gigabyte, {4, 2}), 50);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_to_all, gigabyte, {4, 1}), 75);
}

TEST(CollectiveTime, OfSmallDataIsItsLatencyAndGrowsWithRanks) {
  const Cluster cluster = pairs(5, 20);
  double last = 0;
  for (int ranks = 2; ranks <= 4096; ranks *= 2) {
    for (const auto op : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      const double ms = collective_ms(cluster, op, 8, {ranks, 1});
      EXPECT_GE(ms, 0.020);
      EXPECT_GE(collective_ms(cluster, op, 8, {2 * ranks, 1}), ms);
    }
    const double ms = collective_ms(cluster, Collective::reduce_scatter, 8, {ranks, 1});
    EXPECT_GT(ms, last);
    last = ms;
  }
}

TEST(HostCopies, TakeTheTimeOfTheLinkOrOfTheMemoryOfTheNode) {
  Cluster cluster = pairs(0, 0);
  cluster.host = {.memory_gb = 1, .memory_gbs = 400, .memory_share = 0.5, .link_gbs = 50};
  EXPECT_DOUBLE_EQ(host_copy_ms(cluster, gigabyte, 0), 20);
  EXPECT_DOUBLE_EQ(host_copy_ms(cluster, gigabyte, gigabyte), 20);
  cluster.ranks_per_node = 8;
  EXPECT_DOUBLE_EQ(host_copy_ms(cluster, gigabyte, 0), 40);
  EXPECT_DOUBLE_EQ(host_copy_ms(cluster, gigabyte, gigabyte), 80);
}

TEST(Placement, FillsNodesInRankOrder) {
  const Cluster cluster = cluster_preset("dgx-h100");
  EXPECT_EQ(placement(cluster, 4, 1).ranks_per_node, 4);
  EXPECT_EQ(placement(cluster, 16, 1).nodes(), 2);
  EXPECT_EQ(placement(cluster, 16, 4).ranks_per_node, 2);
  EXPECT_EQ(placement(cluster, 16, 64).ranks_per_node, 1);
}

TEST(ClusterFile, InheritsFromItsBase) {
  const Cluster cluster = parse_cluster("my.ini",
                                        "# ours\r\n[cluster]\nbase = dgx-h100\nranks-per-node = 4\n\n"
                                        "[network]\ngbs = 12.5 ; one port\n");
  const Cluster base = cluster_preset("dgx-h100");
  EXPECT_EQ(cluster.name, "my.ini");
  EXPECT_EQ(cluster.ranks_per_node, 4);
  EXPECT_EQ(cluster.network.gbs, 12.5);
  EXPECT_EQ(cluster.network.latency_us, base.network.latency_us);
  EXPECT_EQ(cluster.node.gbs, base.node.gbs);
  EXPECT_EQ(cluster.device.name, base.device.name);
}

TEST(ClusterFile, NamesLineAndFieldOfAnError) {
  const std::string begin = "[cluster]\nbase = dgx-h100\n";
  for (const auto& [text, message] : std::map<std::string, std::string>{
           {begin + "[network]\ngbs = -1\n", "my.ini:4: network.gbs = -1: "},
           {begin + "[network]\ngbs = nan\n", "my.ini:4: network.gbs = nan: "},
           {begin + "ranks-per-node = 2.5\n", "my.ini:3: cluster.ranks-per-node"},
           {begin + "[node]\nspeed = 1\n", "my.ini:4: there is no field node.speed"},
           {begin + "[node]\ngbs = 1\ngbs = 2\n", "my.ini:5: node.gbs is given twice"},
           {begin + "gbs\n", "my.ini:3: `gbs`"},
           {"[cluster]\nbase = dgx-b100\n", "my.ini:2: cluster.base: there is no cluster dgx-b100: give one of dgx-2h"},
           {"[cluster]\nranks-per-node = 2\n", "my.ini: device.clock-ghz is missing"}}) {
    EXPECT_THAT(test::message_of<ConfigError>([&, &text = text] { parse_cluster("my.ini", text); }),
                testing::StartsWith(message));
  }
}

}  // namespace
}  // namespace trireme::plan
