#include "src/plan/cases/published_costs.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/base/check.hpp"
#include "src/plan/cost/costs.hpp"

namespace trireme::plan {
namespace {

struct Generation {
  const char* name;
  double product, memory, unfused;
  double flash_share;  ///< rate of FlashAttention's first version forward on long sequences, of products
};
/// Fitted with bench/planner to 91 published runs (bench/results/planner-2026-11-23.md), the links' shares in
/// cluster.cpp with them. The rates of flash attention are assumed.
constexpr Generation generations[] = {
    {"V100", 0.981, 0.843, 0.578, 0.54}, {"A100", 0.883, 0.872, 0.6, 0.54}, {"H100", 0.800, 0.767, 0.6, 0.3}};

const Generation& generation_of(const std::string& gpu) {
  // An H200 is an H100 with different memory.
  const std::string name = gpu == "H200" ? "H100" : gpu;
  const auto* found = std::ranges::find_if(generations, [&](const Generation& g) { return g.name == name; });
  TRIREME_CHECK(found != std::end(generations), ConfigError, "no published runs are known of {}: V100, A100, H100",
                gpu);
  return *found;
}

}  // namespace

PublishedCluster published_cluster(const std::string& name) {
  constexpr double product_of_350_watt = 110;
  PublishedCluster result{name, "", cluster_preset(name == "dgx-2" ? "dgx-2h" : name), {}};
  if (name == "dgx-2") result.cluster.device.product_tflops = product_of_350_watt;
  const Generation& generation = generation_of(result.cluster.device.name);
  result.generation = generation.name;
  result.shares = {.product = generation.product,
                   .memory = generation.memory,
                   .node = result.cluster.node.share,
                   .network = result.cluster.network.share,
                   .unfused = generation.unfused};
  return result;
}

PublishedCosts::PublishedCosts(const PublishedCluster& cluster, bool fp8)
    : cluster_(cluster.cluster),
      shares_(cluster.shares),
      flash_share_(generation_of(cluster.cluster.device.name).flash_share),
      fp8_(fp8) {
  cluster_.node.share = shares_.node;
  cluster_.network.share = shares_.network;
}

double PublishedCosts::product(double m, double n, double k) const {
  const ProductCall call{
      .m = std::llround(m), .n = std::llround(n), .k = std::llround(k), .bytes = 2 * (m * k + k * n + m * n)};
  return product_ms(cluster_.device, call) / shares_.product;
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
  return std::max(flops / (cluster_.device.product_tflops * 1e9) / shares_.product, memory(bytes));
}

double PublishedCosts::flash_attention(double flops, double s, bool backward) const {
  // Half of the rate is reached at this length: blocks have startup costs, and those on the diagonal are half empty.
  constexpr double half_length = 700, backward_share = 0.85;
  const double share = flash_share_ * s / (s + half_length) * (backward ? backward_share : 1);
  return flops / (cluster_.device.product_tflops * 1e9 * shares_.product * share);
}

double PublishedCosts::memory(double bytes) const { return bytes / (cluster_.device.copy_gbs * 1e6) / shares_.memory; }

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
