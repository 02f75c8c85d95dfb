#include "src/plan/cases/published_costs.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

struct Generation {
  const char* name;
  double product, memory, unfused;
  double flash_share;
};
/// Fitted with bench/planner to 91 published runs (bench/results/planner-2026-11-23.md), the links' shares in
/// cluster.cpp with them.
constexpr Generation generations[] = {
    {"V100", 0.981, 0.843, 0.578, 0.54}, {"A100", 0.883, 0.872, 0.6, 0.54}, {"H100", 0.800, 0.767, 0.6, 0.3}};

}  // namespace

PublishedCluster published_cluster(const std::string& name) {
  constexpr double product_of_350_watt = 110;
  Cluster cluster = cluster_preset(name == "dgx-2" ? "dgx-2h" : name);
  if (name == "dgx-2") cluster.device.product_tflops = product_of_350_watt;
  // An H200 is an H100 with different memory.
  const std::string gpu = cluster.device.name == "H200" ? "H100" : cluster.device.name;
  const auto* found = std::ranges::find_if(generations, [&](const Generation& g) { return g.name == gpu; });
  TRIREME_CHECK(found != std::end(generations), ConfigError, "no published runs are known of {}: V100, A100, H100",
                gpu);
  return {found->name,
          cluster,
          {.product = found->product,
           .memory = found->memory,
           .node = cluster.node.share,
           .network = cluster.network.share,
           .unfused = found->unfused},
          found->flash_share};
}

PublishedCosts::PublishedCosts(const PublishedCluster& cluster, bool fp8)
    : published_(cluster), cluster_(cluster.cluster), fp8_(fp8) {
  cluster_.node.share = cluster.shares.node;
  cluster_.network.share = cluster.shares.network;
}

double PublishedCosts::product(double m, double n, double k) const {
  const ProductCall call{
      .m = std::llround(m), .n = std::llround(n), .k = std::llround(k), .bytes = 2 * (m * k + k * n + m * n)};
  return product_time(cluster_.device, call).ms / published_.shares.product;
}

double PublishedCosts::layer_product(double m, double n, double k) const {
  constexpr double fp8_gain = 1.5;
  return product(m, n, k) / (fp8_ ? fp8_gain : 1);
}

double PublishedCosts::head_products(double count, double m, double n, double k) const {
  constexpr double tile = 128;
  const auto padded = [](double extent) { return std::ceil(extent / tile) * tile; };
  const double flops = 2 * count * m * padded(n) * padded(k);
  const double bytes = 2 * count * (m * k + n * k + m * n);
  return std::max(flops / (cluster_.device.product_tflops * 1e9) / published_.shares.product, memory(bytes));
}

double PublishedCosts::flash_attention(double flops, double s, bool backward) const {
  // Half of the rate is reached at this length: blocks have startup costs, and those on the diagonal are half empty.
  constexpr double half_length = 700, backward_share = 0.85;
  const double share = published_.flash_share * s / (s + half_length) * (backward ? backward_share : 1);
  return flops / (cluster_.device.product_tflops * 1e9 * published_.shares.product * share);
}

double PublishedCosts::memory(double bytes) const {
  return bytes / (cluster_.device.copy_gbs * 1e6) / published_.shares.memory;
}

double PublishedCosts::launches(int kernels) const {
  constexpr double launch_ms = 6e-3;
  return kernels * launch_ms;
}

double PublishedCosts::collective(Collective op, double bytes, int ranks, int stride) const {
  return collective_ms(cluster_, op, bytes, placement(cluster_, ranks, stride));
}

double PublishedCosts::message(double bytes, bool to_another_node) const {
  // One pair of ranks uses few NVLink channels. The host restarts kernels afterwards.
  constexpr double start_ms = 0.13, node_share = 0.27, adapter_share = 0.9;
  const double gbs = to_another_node ? adapter_share * cluster_.network.gbs : node_share * cluster_.node.gbs;
  return bytes / (gbs * 1e6) + start_ms;
}

}  // namespace trireme::plan
