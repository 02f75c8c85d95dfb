#include "src/plan/cost/costs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

namespace trireme::plan {
namespace {

std::int64_t tiles_of(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

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

/// Multiply-adds of the busiest multiprocessor, as many as the largest tile does in that time, and bytes of partial
/// sums.
struct Waves {
  double multiply_adds;
  double partial_bytes;
};
Waves waves(const Device& device, const ProductCall& p, const Tile& tile, int splits) {
  const std::int64_t blocks = tiles_of(p.m, tile.m) * tiles_of(p.n, tile.n) * splits;
  const auto count = static_cast<double>(tiles_of(blocks, device.multiprocessors));
  const double k = static_cast<double>(tiles_of(p.k, splits)) + pipeline_k;
  return {count * static_cast<double>(tile.m * tile.n) * k / tile.share(device),
          splits == 1 ? 0 : 8.0 * splits * static_cast<double>(p.m) * static_cast<double>(p.n)};
}

/// Seconds of the best tile and split, for `rate` multiply-adds per second and multiprocessor.
double best_time(const Device& device, const ProductCall& p, double rate) {
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : product_tiles) {
    for (int splits = 1; splits <= max_splits && (splits == 1 || p.k / splits >= min_split_k); ++splits) {
      const Waves w = waves(device, p, tile, splits);
      best = std::min(best, w.multiply_adds / rate + w.partial_bytes / (device.copy_gbs * 1e9));
    }
  }
  return best;
}

/// Multiply-adds per second of a multiprocessor, calibrated to the rate at 8192^3.
double rate_of_multiprocessor(const Device& device) {
  constexpr ProductCall large{.m = 8192, .n = 8192, .k = 8192};
  const double seconds = 2 * std::pow(8192.0, 3) / (device.product_tflops * 1e12);
  double fewest = std::numeric_limits<double>::infinity();
  for (const Tile& tile : product_tiles) fewest = std::min(fewest, waves(device, large, tile, 1).multiply_adds);
  return fewest / seconds;
}

/// A kernel's work on one warp's 16 rows and one tile of the other side.
struct TileWork {
  int instructions;
  int dropout_instructions;  ///< more with dropout
  int mma;                   ///< m16n8k16
};
struct AttentionWork {
  TileWork forward, query_gradient;  // 16 queries, 64 keys
  TileWork key_gradient;             // 16 keys, 32 queries
};
/// Counted in the code of sm_90 (nvcc 13.0) by bench/sass: instructions of the loops that hold the mma.sync, on the
/// path without masking or growing maxima, and those that dropout adds. A warp of the forward of 96 channels has twice
/// the rows, and half its 808 and 625 here.
AttentionWork attention_work(std::int64_t d) {
  if (d == 64) return {{369, 313, 64}, {506, 258, 96}, {425, 165, 64}};
  if (d == 96) return {{404, 313, 96}, {585, 258, 144}, {498, 165, 96}};
  if (d == 128) return {{472, 312, 128}, {666, 258, 192}, {539, 165, 128}};
  // Two kernels for keys and values, which both compute scores.
  if (d == 192) return {{604, 312, 192}, {914, 259, 288}, {1033, 330, 240}};
  // No kernel exists for others: interpolated linearly from the counts for 64 and 128.
  const int n = static_cast<int>(d);
  return {{266 + 103 * n / 64, 313, n}, {346 + 5 * n / 2, 258, 3 * n / 2}, {311 + 57 * n / 32, 165, n}};
}

/// Blocks of a tensor group's collectives, and the multiprocessors left free by concurrent products
/// (cuda/runtime/multiprocessors.hpp).
constexpr int tensor_group_blocks = 16;

constexpr int quarters = 4, warp_rows = 16, query_rows = 128, key_tile = 64;

/// Clocks of a block's step: its warps share the quarters.
double clocks(const Device& device, const TileWork& work, int warps, bool dropout) {
  return static_cast<double>(warps) / quarters *
         (work.instructions + (dropout ? work.dropout_instructions : 0) + work.mma * device.mma_clocks);
}

/// Clocks of the busiest multiprocessor, if each block takes `steps(block)` steps.
double makespan(const Device& device, const AttentionProblem& a, std::int64_t blocks, double clocks_a_step,
                const std::function<std::int64_t(std::int64_t)>& steps) {
  const double overhead =
      block_overhead_steps * clocks(device, attention_work(a.head_dim).forward, query_rows / warp_rows, false);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < device.multiprocessors; ++i) free_at.push(0);
  double end = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const double done = free_at.top() + overhead + static_cast<double>(steps(block)) * clocks_a_step;
    free_at.pop();
    free_at.push(done);
    end = std::max(end, done);
  }
  return end;
}

/// The problem with only its window: documents are unknown here.
AttentionProblem without_documents(AttentionProblem a) {
  a.first_visible = nullptr;
  return a;
}

/// Tiles of keys that a block of queries, up to `end`, reads.
std::int64_t key_tiles(const AttentionProblem& a, std::int64_t end, std::int64_t rows, std::int64_t tile) {
  const std::int64_t seen = a.causal ? std::clamp<std::int64_t>(a.first_query + end - a.first_key, 0, a.keys) : a.keys;
  return std::max<std::int64_t>(tiles_of(seen, tile) - a.first_key_of(0, end - rows) / tile, 0);
}

/// Blocks of 128 queries, the last ones first; steps over 64 keys.
double query_blocks(const Device& device, const AttentionProblem& problem, const TileWork& work) {
  const AttentionProblem a = without_documents(problem);
  const std::int64_t tiles = tiles_of(a.queries, query_rows);
  const double clocks_a_step = clocks(device, work, query_rows / warp_rows, a.dropout.enabled());
  return makespan(device, a, tiles * a.heads * a.batch, clocks_a_step, [&](std::int64_t block) {
    return key_tiles(a, (tiles - block % tiles) * query_rows, query_rows, key_tile);
  });
}

/// Blocks of 64 keys; steps over 32 queries.
double key_blocks(const Device& device, const AttentionProblem& a, const TileWork& work) {
  constexpr int rows = 64, query_tile = 32;
  const std::int64_t tiles = tiles_of(a.keys, rows);
  const double clocks_a_step = clocks(device, work, rows / warp_rows, a.dropout.enabled());
  return makespan(device, a, tiles * a.kv_heads * a.batch, clocks_a_step, [&](std::int64_t block) {
    const std::int64_t first = a.first_key + block % tiles * rows - a.first_query;
    const std::int64_t hidden = a.causal ? std::clamp<std::int64_t>(first, 0, a.queries) : 0;
    // The last query whose window reaches the block's last key is `window` positions after it.
    const std::int64_t end = a.window < 0 ? a.queries : std::clamp<std::int64_t>(first + rows + a.window, 0, a.queries);
    return std::max<std::int64_t>(tiles_of(end, query_tile) - hidden / query_tile, 0) * (a.heads / a.kv_heads);
  });
}

/// Clocks without tensor cores, for blocks of 16 queries and tiles of 32 keys, spread evenly over multiprocessors. The
/// backward forms scores and their gradients twice: for the gradients of queries and for those of keys and values.
double tile_clocks(const Device& device, const KernelCall& call) {
  constexpr std::int64_t rows = 16, tile = 32;
  constexpr double multiply_adds_a_clock = 16;
  const AttentionProblem a = without_documents(*call.attention);
  std::int64_t tiles = 0;
  for (std::int64_t block = 1; block <= tiles_of(a.queries, rows); ++block) {
    tiles += key_tiles(a, block * rows, rows, tile);
  }
  const double products = call.kind == KernelKind::attention ? 2 : 7;
  return products * static_cast<double>(tiles * rows * tile * a.head_dim) * static_cast<double>(a.heads * a.batch) /
         (multiply_adds_a_clock * device.multiprocessors);
}

double memory_ms(const Device& device, double bytes) { return bytes / (device.copy_gbs * 1e6 * device.memory_share); }

}  // namespace

double product_ms(const Device& device, const ProductCall& product) {
  if (product.m == 0 || product.n == 0 || product.k == 0) return 0;
  return 1e3 *
         std::max(best_time(device, product, rate_of_multiprocessor(device)), product.bytes / (device.copy_gbs * 1e9));
}

double attention_ms(const Device& device, const KernelCall& call) {
  const AttentionProblem& a = call.attention.value();
  const AttentionWork work = attention_work(a.head_dim);
  const double clocks =
      !call.tensor_cores ? tile_clocks(device, call)
      : call.kind == KernelKind::attention
          ? query_blocks(device, a, work.forward)
          : (query_blocks(device, a, work.query_gradient) + key_blocks(device, a, work.key_gradient)) /
                device.attention_backward_share;
  return clocks / (device.clock_ghz * 1e6) + memory_ms(device, call.bytes);
}

Cost cost_of(const Device& device, const KernelCall& call, bool graphs) {
  Cost cost;
  if (const auto us = device.measured.time_us(measured_form(call))) {
    cost.main = 1e-3 * *us;
    cost.launches = 1;
    cost.gap = 1e-3 * device.launch_gap_us;
    return cost;
  }
  bool fused = false;
  if (call.product) {
    const ProductEnd end = call.product->end;
    fused =
        call.product->can_fuse && end != ProductEnd::bias_gradient && (device.fuses_gelu || end == ProductEnd::bias);
    cost.main = product_ms(device, *call.product);
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
  beside_collective_.product_tflops *= 1 - static_cast<double>(tensor_group_blocks) / device.multiprocessors;
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
