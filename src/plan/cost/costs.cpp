#include "src/plan/cost/costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::plan {
namespace {

/// Tiles of a product, and the equivalent of k lost to filling and draining their pipeline.
struct Tile {
  std::int64_t m, n;
  double share(const Device& device) const {
    return std::pow(device.half_tile_share, std::log2(256 * 128 / static_cast<double>(m * n)));
  }
};
constexpr std::array<Tile, 7> product_tiles = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}}};
constexpr double pipeline_k = 256;
constexpr int max_splits = 8;
constexpr std::int64_t min_split_k = 512;

/// Multiply-adds of the busiest multiprocessor, as many as the largest tile does in that time, bytes of partial sums,
/// and the share of multiprocessors and time that the last wave leaves free.
struct Waves {
  double multiply_adds;
  double partial_bytes;
  double free_share;
};
Waves waves(const Device& device, const ProductCall& p, const Tile& tile, int splits) {
  const std::int64_t blocks = p.batch * tiles_of(p.m, tile.m) * tiles_of(p.n, tile.n) * splits;
  const auto count = static_cast<double>(tiles_of(blocks, device.multiprocessors));
  // A stage of the pipeline has as many bytes.
  const double k = static_cast<double>(tiles_of(p.k, splits)) + pipeline_k * (p.fp8 ? 2 : 1);
  return {count * static_cast<double>(tile.m * tile.n) * k / tile.share(device),
          splits == 1 ? 0 : 8.0 * splits * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n),
          1 - static_cast<double>(blocks) / (count * device.multiprocessors)};
}

/// Time of the best tile and split, for `rate` multiply-adds per second and multiprocessor.
ProductTime best_time(const Device& device, const ProductCall& p, double rate) {
  ProductTime best{std::numeric_limits<double>::infinity(), 0};
  for (const Tile& tile : product_tiles) {
    for (int splits = 1; splits <= max_splits && (splits == 1 || p.k / splits >= min_split_k); ++splits) {
      const Waves w = waves(device, p, tile, splits);
      const double ms = 1e3 * (w.multiply_adds / rate + w.partial_bytes / (device.copy_gbs * 1e9));
      if (ms < best.ms) best = {ms, w.free_share * ms};
    }
  }
  return best;
}

/// Multiply-adds per second of a multiprocessor in products like `p`, calibrated to the rate at 8192^3.
double rate_of_multiprocessor(const Device& device, const ProductCall& p) {
  const ProductCall large{.m = 8192, .n = 8192, .k = 8192, .fp8 = p.fp8};
  const double tflops = p.fp8 ? device.fp8_tflops : device.product_tflops;
  const double seconds = 2 * std::pow(8192.0, 3) / (tflops * 1e12);
  double fewest = std::numeric_limits<double>::infinity();
  for (const Tile& tile : product_tiles) fewest = std::min(fewest, waves(device, large, tile, 1).multiply_adds);
  return fewest / seconds;
}

/// Blocks of a tensor group's collectives, and the multiprocessors left free by concurrent products
/// (cuda/runtime/multiprocessors.hpp).
constexpr int tensor_group_blocks = 16;

}  // namespace

ProductTime product_time(const Device& device, const ProductCall& product) {
  if (product.m == 0 || product.n == 0 || product.k == 0) return {};
  const ProductTime best = best_time(device, product, rate_of_multiprocessor(device, product));
  const double memory_ms = product.bytes / (device.copy_gbs * 1e6);
  return best.ms > memory_ms ? best : ProductTime{memory_ms, 0};
}

double hidden_update_ms(double update_ms, std::size_t buckets, double idle_ms) {
  return buckets == 0 ? 0 : std::min(idle_ms, update_ms * (1 - 1 / static_cast<double>(buckets)));
}

Cost cost_of(const Device& device, const KernelCall& call, bool graphs) {
  Cost cost;
  const bool rounds = call.product && call.product->fp8;
  if (const auto us = rounds ? std::nullopt : device.measured.time_us(measured_form(call))) {
    cost.main = 1e-3 * *us;
    cost.launches = 1;
    cost.gap = 1e-3 * device.launch_gap_us;
    return cost;
  }
  bool fused = false;
  if (call.product) {
    const ProductEnd end = call.product->end;
    fused = call.product->can_fuse && end != ProductEnd::bias_gradient &&
            ((device.fuses_gelu && !rounds) || end == ProductEnd::bias);
    const ProductTime time = product_time(device, *call.product);
    cost.idle = call.product->beside ? 0 : time.idle_ms;
    cost.main = time.ms - (time.idle_ms - cost.idle) + memory_ms(device, call.product->rounded_bytes);
    if (end != ProductEnd::none && !fused) cost.end = memory_ms(device, call.product->end_bytes);
  } else if (call.attention) {
    cost.main = attention_ms(device, call);
  } else if (call.kind == KernelKind::results) {
    cost.gap = 1e-3 * device.host_wait_us;
  } else if (call.kind != KernelKind::inputs) {
    cost.main = memory_ms(device, call.bytes);
    if (call.kind == KernelKind::norm_backward) cost.main *= device.memory_share / device.norm_backward_share;
  }
  cost.launches = call.launch_count(fused);
  cost.gap += 1e-3 * cost.launches * (graphs ? device.graph_gap_us : device.launch_gap_us);
  return cost;
}

CallCosts::CallCosts(const Device& device) : device_(device), beside_collective_(device) {
  if (device.multiprocessors <= tensor_group_blocks) return;
  const double share = 1 - static_cast<double>(tensor_group_blocks) / device.multiprocessors;
  beside_collective_.product_tflops *= share;
  beside_collective_.fp8_tflops *= share;
}

Cost CallCosts::of(const KernelCall& call, bool graphs, bool beside_collective) {
  if (!call.attention) return cost_of(beside_collective && call.product ? beside_collective_ : device_, call, graphs);
  const AttentionProblem& a = *call.attention;
  const AttentionKey key = {
      call.kind,
      call.bytes,
      {a.queries, a.keys, a.first_query, a.first_key, a.batch, a.heads, a.kv_heads, a.head_dim, a.window},
      call.tensor_cores,
      a.causal,
      a.dropout.enabled(),
      graphs};
  const auto known = attention_.find(key);
  return known != attention_.end() ? known->second : attention_[key] = cost_of(device_, call, graphs);
}

GroupPlacement placement(const Cluster& cluster, int ranks, int stride) {
  return {ranks, std::clamp(cluster.ranks_per_node / stride, 1, ranks)};
}

double collective_ms(const Cluster& cluster, Collective op, double bytes, const GroupPlacement& group) {
  if (group.ranks <= 1) return 0;
  const int nodes = group.nodes();
  const bool one_node = nodes == 1;
  if (one_node || group.ranks_per_node == 1) {
    const Link& link = one_node ? cluster.node : cluster.network;
    if (const auto us = link.measured.time_us({collective_name(op, group.ranks), {}, bytes})) return 1e-3 * *us;
  }
  double gbs = group.ranks_per_node == 1 ? cluster.network.bus_gbs() : cluster.node.bus_gbs();
  if (!one_node) gbs = std::min(gbs, group.ranks_per_node * cluster.network.bus_gbs());
  const double inner_us = cluster.node.latency_us, outer_us = cluster.network.latency_us;
  const double passes = op == Collective::all_reduce ? 2 : 1;
  const double ring_us = passes * (one_node ? inner_us : outer_us) * (1 + ring_step_share * (group.ranks - 2));
  const double tree_us = passes * (std::log2(nodes) * outer_us + (group.ranks_per_node > 1 ? inner_us : 0));
  const bool has_tree = op == Collective::all_reduce || op == Collective::broadcast;
  const double latency_us = op == Collective::send_receive ? (one_node ? inner_us : outer_us)
                            : has_tree                     ? std::min(ring_us, std::max(tree_us, inner_us))
                                                           : ring_us;
  if (op == Collective::all_to_all && !one_node) {
    // Both links work at once. No part that leaves the node is shared: each rank sends its own by its own adapter.
    const double part = bytes / group.ranks;
    const double inside = part * (group.ranks_per_node - 1) / (cluster.node.bus_gbs() * 1e6);
    const double outside = part * (group.ranks - group.ranks_per_node) / (cluster.network.bus_gbs() * 1e6);
    return std::max(inside, outside) + latency_us * 1e-3;
  }
  return bytes * bus_factor(op, group.ranks) / (gbs * 1e6) + latency_us * 1e-3;
}

}  // namespace trireme::plan
