#include "bench/step/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "src/base/check.hpp"

namespace trireme::bench {
namespace {

std::int64_t tiles_of(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

/// Tiles of a product, and what is lost of k to fill and empty their pipeline.
struct Tile {
  std::int64_t m, n;
};
constexpr std::array<Tile, 7> product_tiles = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}}};
constexpr double pipeline_k = 256;
constexpr int max_splits = 8;
constexpr std::int64_t min_split_k = 512;

/// Multiply-adds of the busiest multiprocessor, and bytes of partial sums.
struct Waves {
  double multiply_adds;
  double partial_bytes;
};
Waves waves(const Gpu& gpu, const ProductCall& p, const Tile& tile, int splits) {
  const std::int64_t blocks = tiles_of(p.m, tile.m) * tiles_of(p.n, tile.n) * splits;
  const auto count = static_cast<double>(tiles_of(blocks, gpu.multiprocessors));
  const double k = static_cast<double>(tiles_of(p.k, splits)) + pipeline_k;
  return {count * static_cast<double>(tile.m * tile.n) * k,
          splits == 1 ? 0 : 8.0 * splits * static_cast<double>(p.m) * static_cast<double>(p.n)};
}

/// Seconds of the best tile and split, where a multiprocessor makes `rate` multiply-adds a second.
double best_time(const Gpu& gpu, const ProductCall& p, double rate) {
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : product_tiles) {
    for (int splits = 1; splits <= max_splits && (splits == 1 || p.k / splits >= min_split_k); ++splits) {
      const Waves w = waves(gpu, p, tile, splits);
      best = std::min(best, w.multiply_adds / rate + w.partial_bytes / (gpu.copy_gbs * 1e9));
    }
  }
  return best;
}

/// Multiply-adds a second of a multiprocessor, such that 8192^3 runs at the rate reached there.
double rate_of_multiprocessor(const Gpu& gpu) {
  constexpr ProductCall large{.m = 8192, .n = 8192, .k = 8192};
  const double seconds = 2 * std::pow(8192.0, 3) / (gpu.product_tflops * 1e12);
  double fewest = std::numeric_limits<double>::infinity();
  for (const Tile& tile : product_tiles) fewest = std::min(fewest, waves(gpu, large, tile, 1).multiply_adds);
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
/// Counted in the code of sm_90 (cuobjdump, nvcc 13.0): instructions of the loops that hold the mma.sync, on their path
/// where the mask hides nothing and no maximum grows. bench/results/predict-2026-11-23.md has the commands.
AttentionWork attention_work(std::int64_t d) {
  switch (d) {
    case 64:
      return {{335, 313, 64}, {475, 342, 96}, {431, 164, 64}};
    case 96:
      return {{384, 313, 96}, {554, 342, 144}, {508, 164, 96}};
    case 128:
      return {{443, 313, 128}, {637, 342, 192}, {549, 164, 128}};
    default:
      throw ConfigError(fmt::format("heads of {} channels have no flash attention: 64, 96 or 128", d));
  }
}

constexpr int quarters = 4, warp_rows = 16, query_rows = 128, key_tile = 64;
/// Start and end of a block of attention, in forward steps of 128 queries and 64 keys.
constexpr double block_overhead_steps = 1.8;

/// Clocks of a block's step: its warps share the quarters.
double clocks(const Gpu& gpu, const TileWork& work, int warps, bool dropout) {
  return static_cast<double>(warps) / quarters *
         (work.instructions + (dropout ? work.dropout_instructions : 0) + work.mma * gpu.mma_clocks);
}

/// Clocks of the busiest multiprocessor, where each block takes `steps(block)` steps.
double makespan(const Gpu& gpu, const AttentionProblem& a, std::int64_t blocks, double clocks_a_step,
                const std::function<std::int64_t(std::int64_t)>& steps) {
  const double overhead =
      block_overhead_steps * clocks(gpu, attention_work(a.head_dim).forward, query_rows / warp_rows, false);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < gpu.multiprocessors; ++i) free_at.push(0);
  double end = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const double done = free_at.top() + overhead + static_cast<double>(steps(block)) * clocks_a_step;
    free_at.pop();
    free_at.push(done);
    end = std::max(end, done);
  }
  return end;
}

/// Blocks of 128 queries, the last ones first; steps over 64 keys.
double query_blocks(const Gpu& gpu, const AttentionProblem& a, const TileWork& work) {
  const std::int64_t tiles = tiles_of(a.queries, query_rows);
  const double clocks_a_step = clocks(gpu, work, query_rows / warp_rows, a.dropout.enabled());
  return makespan(gpu, a, tiles * a.heads * a.batch, clocks_a_step, [&](std::int64_t block) {
    const std::int64_t end = (tiles - block % tiles) * query_rows;
    const std::int64_t seen =
        a.causal ? std::clamp<std::int64_t>(a.first_query + end - a.first_key, 0, a.keys) : a.keys;
    return tiles_of(seen, key_tile);
  });
}

/// Blocks of 64 keys; steps over 32 queries.
double key_blocks(const Gpu& gpu, const AttentionProblem& a, const TileWork& work) {
  constexpr int rows = 64, query_tile = 32;
  const std::int64_t tiles = tiles_of(a.keys, rows);
  const double clocks_a_step = clocks(gpu, work, rows / warp_rows, a.dropout.enabled());
  return makespan(gpu, a, tiles * a.kv_heads * a.batch, clocks_a_step, [&](std::int64_t block) {
    const std::int64_t first = a.first_key + block % tiles * rows - a.first_query;
    const std::int64_t hidden = a.causal ? std::clamp<std::int64_t>(first, 0, a.queries) : 0;
    return (tiles_of(a.queries, query_tile) - hidden / query_tile) * (a.heads / a.kv_heads);
  });
}

double memory_ms(const Gpu& gpu, double bytes) { return bytes / (gpu.copy_gbs * 1e6 * gpu.memory_share); }

}  // namespace

std::span<const Gpu> gpus() {
  static const std::array<Gpu, 3> all = {{{.name = "H200",
                                           .peak_tflops = 989,
                                           .product_tflops = 790,
                                           .copy_gbs = 4300,
                                           .multiprocessors = 132,
                                           .clock_ghz = 1.83,
                                           .mma_clocks = 6.6,
                                           .fuses_gelu = true},
                                          {.name = "H100",
                                           .peak_tflops = 989,
                                           .product_tflops = 790,
                                           .copy_gbs = 3000,
                                           .multiprocessors = 132,
                                           .clock_ghz = 1.83,
                                           .mma_clocks = 6.6,
                                           .fuses_gelu = true},
                                          {.name = "A100",
                                           .peak_tflops = 312,
                                           .product_tflops = 265,
                                           .copy_gbs = 1800,
                                           .multiprocessors = 108,
                                           .clock_ghz = 1.41,
                                           .mma_clocks = 8,
                                           .fuses_gelu = false}}};
  return all;
}

const Gpu* find_gpu(const std::string& device) {
  const auto found =
      std::ranges::find_if(gpus(), [&](const Gpu& gpu) { return device.find(gpu.name) != std::string::npos; });
  return found == gpus().end() ? nullptr : &*found;
}

std::vector<ConstantRow> constants() {
  std::vector<ConstantRow> rows;
  const auto add = [&](const char* name, auto value_of, const char* source) {
    ConstantRow row{name, {}, source};
    for (const Gpu& gpu : gpus()) row.values.push_back(value_of(gpu));
    rows.push_back(std::move(row));
  };
  const auto number = [](double Gpu::*member) {
    return [member](const Gpu& gpu) { return fmt::format("{:g}", gpu.*member); };
  };
  const auto same = [](const std::string& value) { return [value](const Gpu&) { return value; }; };
  const auto multiprocessors = [](const Gpu& gpu) { return fmt::format("{}", gpu.multiprocessors); };
  const auto fuses_gelu = [](const Gpu& gpu) { return std::string(gpu.fuses_gelu ? "yes" : "no"); };
  add("dense bf16 peak, TFLOP/s", number(&Gpu::peak_tflops), "NVIDIA's data sheets");
  add("multiprocessors", multiprocessors, "NVIDIA's data sheets");
  add("clock, GHz", number(&Gpu::clock_ghz), "at which the peak holds: peak / (multiprocessors x FLOP a clock)");
  add("product of 8192^3, TFLOP/s", number(&Gpu::product_tflops),
      "assumed, just below the best shapes of H100 (794.5) and A100 (271.2) in stas00/ml-engineering, MAMF");
  add("tiles of products", same("7"),
      "assumed: 256x128, 128x128, 256x64, 128x64 and their mirrors, k split up to 8 times, all at full rate");
  add("k lost to a tile's pipeline", same("256"), "assumed");
  add("GELU inside products", fuses_gelu,
      "llm.c: fused on Hopper (pull request 591), slower than a kernel of its own before it (338)");
  add("sums of bias gradients inside products", same("no"),
      "assumed, autotuning decides: NVIDIA/CUDALibrarySamples issue 90 has the epilogue slower on an A100");
  add("clocks of an mma.sync on a quarter", number(&Gpu::mma_clocks),
      "Hopper: fit, with the next line, to FlashAttention-2's forward on an H100 (eight rates, within 5 %); A100: "
      "peak");
  add("steps to start and end a block of attention", same(fmt::format("{}", block_overhead_steps)),
      "d 64: 306, 318, causal 229, 262 TFLOP/s; d 128: 350, 362, 260, 298; s 1024, 2048 (flash-attention's "
      "repository)");
  add("copy, GB/s read + written", number(&Gpu::copy_gbs), "assumed: 90 % of 4.8, 3.35 and 2.04 TB/s");
  add("memory-bound kernels, share of the copy", number(&Gpu::memory_share),
      "assumed, the project's goal; llm.c's kernels have 97 to 100 % on an RTX 5090 (llm-kittens)");
  add("backward of norms, share of the copy", number(&Gpu::norm_backward_share),
      "llm.c's on an RTX 5090 (llm-kittens)");
  add("gap after a launch, us", number(&Gpu::launch_gap_us), "assumed");
  add("gap in a graph, us", number(&Gpu::graph_gap_us), "assumed");
  add("wait for a result that the host reads, us", number(&Gpu::host_wait_us), "assumed");
  return rows;
}

double product_ms(const Gpu& gpu, const ProductCall& product) {
  if (product.m == 0 || product.n == 0 || product.k == 0) return 0;
  return 1e3 * std::max(best_time(gpu, product, rate_of_multiprocessor(gpu)), product.bytes / (gpu.copy_gbs * 1e9));
}

double attention_ms(const Gpu& gpu, const KernelCall& call) {
  const AttentionProblem& a = call.attention.value();
  const AttentionWork work = attention_work(a.head_dim);
  const double clocks = call.line == Line::attention
                            ? query_blocks(gpu, a, work.forward)
                            : query_blocks(gpu, a, work.query_gradient) + key_blocks(gpu, a, work.key_gradient);
  return clocks / (gpu.clock_ghz * 1e6) + memory_ms(gpu, call.bytes);
}

Cost cost_of(const Gpu& gpu, const KernelCall& call, bool graphs) {
  Cost cost;
  bool fused = false;
  if (call.product) {
    const ProductEnd end = call.product->end;
    fused = call.product->can_fuse && end != ProductEnd::bias_gradient && (gpu.fuses_gelu || end == ProductEnd::bias);
    cost.main = product_ms(gpu, *call.product);
    if (end != ProductEnd::none && !fused) cost.end = memory_ms(gpu, call.product->end_bytes);
  } else if (call.attention) {
    cost.main = attention_ms(gpu, call);
  } else if (call.line == Line::results) {
    cost.gap = 1e-3 * gpu.host_wait_us;
  } else if (call.line != Line::inputs) {
    cost.main = memory_ms(gpu, call.bytes);
    if (call.line == Line::norm_backward) cost.main *= gpu.memory_share / gpu.norm_backward_share;
  }
  cost.launches = call.launch_count(fused);
  cost.gap += 1e-3 * cost.launches * (graphs ? gpu.graph_gap_us : gpu.launch_gap_us);
  return cost;
}

}  // namespace trireme::bench
