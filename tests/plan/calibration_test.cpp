#include "src/plan/cluster/calibration.hpp"

#include <gmock/gmock.h>

#include <map>

#include "io/json/plan_json.hpp"
#include "src/base/error.hpp"
#include "src/plan/cost/costs.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::plan {
namespace {

constexpr const char* measurements =
    R"({"kernel": "products, forward", "shape": [64, 32, 16], "work": 65536, "us": 16, "calls": 6, "dtype": "fp32", "ranks": 2, "threads": 1}
{"kernel": "optimizer", "shape": [1024], "work": 1024, "us": 1, "calls": 6, "dtype": "fp32", "ranks": 2, "threads": 1}
{"kernel": "optimizer", "shape": [1024], "work": 1024, "us": 5, "calls": 6, "dtype": "fp32", "ranks": 2, "threads": 1}
{"kernel": "optimizer", "shape": [4096], "work": 4096, "us": 1, "calls": 6, "dtype": "fp32", "ranks": 2, "threads": 1}
{"kernel": "step", "shape": [], "work": 1, "us": 3, "calls": 6, "dtype": "fp32", "ranks": 2, "threads": 1}

{"kernel": "optimizer", "shape": [1024], "work": 1024, "us": 8, "calls": 6, "dtype": "fp32", "ranks": 8, "threads": 1}
{"operation": "all_reduce", "communicator": "mpi", "ranks": 2, "bytes": 1024, "time_us": 3.0}
{"operation": "all_reduce", "communicator": "mpi", "ranks": 2, "nodes": 1, "bytes": 1048576, "time_us": 524.288}
{"operation": "all_gather", "communicator": "mpi", "ranks": 2, "nodes": 2, "bytes": 1048576, "time_us": 1048.576}
{"operation": "all_to_all", "communicator": "mpi", "ranks": 2, "nodes": 1, "bytes": 4096, "time_us": 9.0}
)";

Calibration read(const std::string& text) {
  Calibration calibration;
  io::add_calibration(text, "cal.jsonl", calibration);
  return calibration;
}

/// A cluster whose costs must all be replaced.
Cluster unmeasured(int ranks_per_node) {
  Cluster cluster{};
  cluster.ranks_per_node = ranks_per_node;
  cluster.node = cluster.network = {7, 0.5, 7};
  return cluster;
}

TEST(Calibration, TimesKernelsByTheirShape) {
  const Device device = calibrated(unmeasured(2), read(measurements), DType::fp32).device;
  const auto ms = [&](const KernelCall& call) { return cost_of(device, call).main; };
  EXPECT_DOUBLE_EQ(ms({.kind = KernelKind::forward, .product = ProductCall{.m = 64, .n = 32, .k = 16}}), 0.016);
  EXPECT_DOUBLE_EQ(ms({.kind = KernelKind::optimizer, .bytes = 1024}), 0.001);
  // Midway between two rates, 1024 and 4096 bytes a microsecond.
  EXPECT_NEAR(ms({.kind = KernelKind::optimizer, .bytes = 2048}), 0.001, 1e-15);
  EXPECT_DOUBLE_EQ(cost_of(device, {.kind = KernelKind::optimizer, .bytes = 1024}).gap, 0.003);
  EXPECT_EQ(ms({.kind = KernelKind::optimizer, .bytes = 0}), 0);
}

TEST(Calibration, TakesKernelsOfTheNearestNumberOfRanks) {
  const auto us_of = [&](int ranks) {
    const Device device = calibrated(unmeasured(ranks), read(measurements), DType::fp32).device;
    return 1e3 * cost_of(device, {.kind = KernelKind::optimizer, .bytes = 1024}).main;
  };
  EXPECT_DOUBLE_EQ(us_of(1), 1);
  EXPECT_DOUBLE_EQ(us_of(4), 1);
  EXPECT_DOUBLE_EQ(us_of(5), 8);
  EXPECT_DOUBLE_EQ(us_of(16), 8);
}

TEST(Calibration, ReadsLatencyAndBusBandwidthOfLinks) {
  const Cluster cluster = calibrated(unmeasured(2), read(measurements), DType::fp32);
  EXPECT_DOUBLE_EQ(cluster.node.latency_us, 1.5);
  EXPECT_DOUBLE_EQ(cluster.node.bus_gbs(), 2);
  EXPECT_DOUBLE_EQ(cluster.network.bus_gbs(), 0.5);
  // By size for a measured number of ranks; otherwise by latency and bandwidth.
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_reduce, 1024, {2, 2}), 0.003);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_to_all, 4096, {2, 2}), 0.009);
  EXPECT_NEAR(collective_ms(cluster, Collective::all_gather, 1 << 20, {2, 1}), 1.048576, 1e-12);
  EXPECT_DOUBLE_EQ(collective_ms(cluster, Collective::all_gather, 4e6, {2, 2}), 1.0 + 0.0015);
}

TEST(Calibration, ReadsCeilingsAndSharesOfGpus) {
  const std::string text =
      R"({"kernel": "product", "shape": "8192^3", "dtype": "bf16", "us": 1.5, "rate": 700, "unit": "TFLOP/s", "ceiling": 700, "share": 1.0}
{"kernel": "copy", "shape": "64 MiB", "dtype": "bf16", "us": 1.5, "rate": 3000, "unit": "GB/s", "ceiling": 3000, "share": 1.0}
{"kernel": "layer norm", "shape": "s", "dtype": "bf16", "us": 1.5, "rate": 2400, "unit": "GB/s", "ceiling": 3000, "share": 0.8}
{"kernel": "layer norm, backward + residual", "shape": "s", "dtype": "bf16", "us": 1.5, "rate": 1500, "unit": "GB/s", "ceiling": 3000, "share": 0.5}
)";
  const Device device = calibrated(unmeasured(8), read(text), DType::bf16).device;
  EXPECT_DOUBLE_EQ(device.product_tflops, 700);
  EXPECT_DOUBLE_EQ(device.copy_gbs, 3000);
  EXPECT_DOUBLE_EQ(device.memory_share, 0.8);
  EXPECT_DOUBLE_EQ(device.norm_backward_share, 0.5);
  EXPECT_TRUE(device.measured.empty());
}

TEST(Calibration, ErrorsNameFileLineAndField) {
  const std::string first = R"({"operation": "all_reduce", "ranks": 2, "bytes": 8, "time_us": 1})";
  for (const auto& [line, message] : std::map<std::string, std::string>{
           {"[1]", R"(neither a "kernel" nor an "operation")"},
           {R"({"operation": "all_reduce", "ranks": 2, "bytes": 8})", R"(there is no "time_us")"},
           {R"({"operation": "alltoall", "ranks": 2, "bytes": 8, "time_us": 1})", R"("operation" is "alltoall")"},
           {R"({"operation": "all_reduce", "ranks": 2.5, "bytes": 8, "time_us": 1})", R"("ranks" is 2.5)"},
           {R"({"operation": "all_reduce", "ranks": 2, "nodes": 4, "bytes": 8, "time_us": 1})", R"("nodes" is 4)"},
           {R"({"operation": "all_reduce", "ranks": 2, "bytes": 8, "time_us": "fast"})", R"("time_us" is "fast")"},
           {R"({"kernel": "optimizer", "work": 1, "us": 1, "dtype": "fp32", "ranks": 1})", R"(there is no "shape")"},
           {R"({"kernel": "optimizer", "shape": [0], "work": 1, "us": 1, "dtype": "fp32", "ranks": 1})",
            R"("shape" is 0)"},
           {R"({"kernel": "optimizer", "shape": [1], "work": 1, "us": 1, "dtype": "int4", "ranks": 1})",
            R"("dtype" is "int4")"},
           {R"({"kernel": "copy", "unit": "MB/s", "ceiling": 1, "share": 1})", R"("unit" is "MB/s")"}}) {
    EXPECT_THAT(test::message_of<DataError>([&, &line = line] { read(first + "\n" + line); }),
                testing::HasSubstr("cal.jsonl:2: " + message));
  }
  EXPECT_THAT(test::message_of<DataError>([&] { read(first + "\n{"); }),
              testing::ContainsRegex("cal.jsonl:2:[0-9]+: not JSON"));
  EXPECT_THROW(read(" \n\n"), DataError);
}

}  // namespace
}  // namespace trireme::plan
