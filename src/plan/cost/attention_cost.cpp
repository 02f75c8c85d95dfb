#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "src/plan/cost/costs.hpp"

namespace trireme::plan {
namespace {

constexpr int quarters = 4, warp_rows = 16;
constexpr double multiply_adds_of_mma = 16 * 8 * 16;

/// Blocks of a kernel, and the work of each of their warps, which have 16 rows, on one tile of the other side.
struct TileWork {
  int rows;     ///< rows of a block
  int columns;  ///< columns of a tile
  int instructions;
  int dropout_instructions;                      ///< more with dropout
  int mma;                                       ///< products of m16n8k16, or as much of those of warp groups
  int kept_instructions = dropout_instructions;  ///< more with dropout whose masks are in memory (kept_mask_bytes)
};
struct AttentionWork {
  TileWork forward, query_gradient, key_gradient;  ///< rows of the last are keys
  double mma_clocks;                               ///< on a quarter of a multiprocessor
  double backward_share;                           ///< rate at which backward runs its instructions, as a share
};

/// By products of warp groups, which run at the rate of large products. Counted as below, over the groups of a block
/// (bench/results/hopper-attention-2026-11-28.md).
AttentionWork group_work(const Device& device, int d) {
  const double multiply_adds_a_clock =
      device.product_tflops * 1e3 / (2 * device.clock_ghz * device.multiprocessors * quarters);
  const double clocks = multiply_adds_of_mma / multiply_adds_a_clock;
  if (d == 64) return {{192, 64, 272, 312, 64}, {128, 64, 328, 267, 96}, {128, 64, 572, 342, 128, 83}, clocks, 1};
  if (d == 96) return {{192, 64, 291, 321, 96}, {128, 64, 354, 271, 144}, {128, 64, 619, 343, 192, 83}, clocks, 1};
  return {{128, 64, 300, 312, 128}, {128, 64, 371, 270, 192}, {128, 32, 399, 171, 128, 41}, clocks, 1};
}

/// Counted in the code of sm_90 (nvcc 13.0) by bench/sass: instructions of the loops that hold the mma.sync, on the
/// path without masking or growing maxima, and those that dropout adds. A warp of the forward of 96 channels has twice
/// the rows, and half its 808 and 625 here.
AttentionWork work_of(const Device& device, std::int64_t head_dim) {
  const int d = static_cast<int>(head_dim);
  if (device.warp_groups && has_warp_group_attention(d)) return group_work(device, d);
  const auto work = [&](TileWork forward, TileWork query_gradient, TileWork key_gradient) -> AttentionWork {
    return {forward, query_gradient, key_gradient, device.mma_clocks, device.attention_backward_share};
  };
  if (d == 64) return work({128, 64, 369, 313, 64}, {128, 64, 509, 264, 96}, {64, 32, 426, 171, 64, 41});
  if (d == 96) return work({128, 64, 404, 313, 96}, {128, 64, 586, 264, 144}, {64, 32, 498, 170, 96, 41});
  if (d == 128) return work({128, 64, 472, 312, 128}, {128, 64, 666, 264, 192}, {64, 32, 539, 170, 128, 41});
  // Two kernels for keys and values, which both compute scores.
  if (d == 192) return work({128, 64, 604, 312, 192}, {128, 64, 914, 259, 288}, {64, 32, 1033, 330, 240});
  // No kernel exists for others: interpolated linearly from the counts for 64 and 128.
  return work({128, 64, 266 + 103 * d / 64, 313, d}, {128, 64, 346 + 5 * d / 2, 258, 3 * d / 2},
              {64, 32, 311 + 57 * d / 32, 165, d});
}

/// Clocks of a block's step: its warps share the quarters. `more` are the instructions of dropout.
double clocks(const AttentionWork& attention, const TileWork& work, int more) {
  return static_cast<double>(work.rows) / (warp_rows * quarters) *
         (work.instructions + more + work.mma * attention.mma_clocks);
}

/// Clocks of the busiest multiprocessor, if each block takes `steps(block)` steps.
double makespan(const Device& device, const AttentionWork& attention, std::int64_t blocks, double clocks_a_step,
                const std::function<std::int64_t(std::int64_t)>& steps) {
  const double overhead = block_overhead_steps * clocks(attention, attention.forward, 0);
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

/// Blocks of queries, the last ones first; steps over tiles of keys.
double query_blocks(const Device& device, const AttentionProblem& problem, const AttentionWork& attention,
                    const TileWork& work) {
  const AttentionProblem a = without_documents(problem);
  const std::int64_t tiles = tiles_of(a.queries, work.rows);
  const double clocks_a_step = clocks(attention, work, a.dropout.enabled() ? work.dropout_instructions : 0);
  return makespan(device, attention, tiles * a.heads * a.batch, clocks_a_step, [&](std::int64_t block) {
    return key_tiles(a, (tiles - block % tiles) * work.rows, work.rows, work.columns);
  });
}

/// Blocks of keys; steps over tiles of queries.
double key_blocks(const Device& device, const AttentionProblem& a, const AttentionWork& attention,
                  const TileWork& work) {
  const std::int64_t tiles = tiles_of(a.keys, work.rows);
  const int more = kept_mask_bytes(a) > 0 ? work.kept_instructions : work.dropout_instructions;
  const double clocks_a_step = clocks(attention, work, a.dropout.enabled() ? more : 0);
  return makespan(device, attention, tiles * a.kv_heads * a.batch, clocks_a_step, [&](std::int64_t block) {
    const std::int64_t first = a.first_key + block % tiles * work.rows - a.first_query;
    const std::int64_t hidden = a.causal ? std::clamp<std::int64_t>(first, 0, a.queries) : 0;
    // The last query whose window reaches the block's last key is `window` positions after it.
    const std::int64_t end =
        a.window < 0 ? a.queries : std::clamp<std::int64_t>(first + work.rows + a.window, 0, a.queries);
    return std::max<std::int64_t>(tiles_of(end, work.columns) - hidden / work.columns, 0) * (a.heads / a.kv_heads);
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

}  // namespace

double attention_ms(const Device& device, const KernelCall& call) {
  const AttentionProblem& a = call.attention.value();
  const AttentionWork work = work_of(device, a.head_dim);
  const double clocks =
      a.is_decoding()      ? 0
      : !call.tensor_cores ? tile_clocks(device, call)
      : call.kind == KernelKind::attention
          ? query_blocks(device, a, work, work.forward)
          : (query_blocks(device, a, work, work.query_gradient) + key_blocks(device, a, work, work.key_gradient)) /
                work.backward_share;
  return clocks / (device.clock_ghz * 1e6) + memory_ms(device, call.bytes);
}

}  // namespace trireme::plan
