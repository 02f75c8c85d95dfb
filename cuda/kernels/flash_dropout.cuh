#pragma once

#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/heads.cuh"
#include "cuda/kernels/sums.cuh"

namespace trireme::cuda {

// Dropout of a warp's tile of probabilities. The lanes of a warp divide the draws and exchange them. Of 16 x 8 elements
// a lane has rows g and g + 8, columns 2t and 2t + 1 (g = lane / 4, t = lane % 4). Queries and keys count from the
// sequence's begin; an octet is eight keys, the columns of one call of Philox.

/// State that all draws of one head share. It is opaque to the compiler, which would recompute it for every tile.
struct HeadDropout {
  PackedThreshold threshold;
  std::uint64_t key = 0;
  std::int64_t sample = 0;
  __device__ HeadDropout(const AttentionProblem& problem, std::int64_t sample_of_batch, std::int64_t head)
      : threshold(problem.dropout.keep_threshold) {
    if (!problem.dropout.enabled()) return;
    key = gpu::forgotten(problem.dropout.head_key(problem.first_head + head));
    sample = gpu::forgotten(problem.dropout.samples[sample_of_batch]);
  }
};

/// Keep mask of `query` for up to four octets: bit 15 - 4 o - c / 2 + 16 (c % 2) belongs to key c of octet o.
template <int octets>
__device__ std::uint32_t kept_keys(const HeadDropout& dropout, std::int64_t query, std::int64_t octet) {
  std::uint32_t kept = 0;
#pragma unroll
  for (int o = 0; o < octets; ++o) {
    const auto words = dropout_words(dropout.key, dropout.sample, query, octet + o);
#pragma unroll
    for (int w = 0; w < 4; ++w) kept |= dropout.threshold.below(words[w]) >> (4 * o + w) & 0x80008000U >> (4 * o + w);
  }
  return kept;
}

// Pairs of neighbouring columns take two bits of a lane's word: 15 - p for the first, 31 - p for the second.

__device__ inline bool is_kept(std::uint32_t pairs, int p, int column) {
  return (pairs >> (15 - p + 16 * column) & 1U) != 0;
}
/// Ones over the 16 bits of each column that is kept.
__device__ inline std::uint32_t kept_mask(std::uint32_t pairs, int p) {
  return gpu::permute_bytes(pairs << p, 0, 0xbb99);
}

/// Draws this lane's share of the bits for 16 queries, the warp's rows, and 64 keys: 32 keys of one query.
__device__ inline std::uint32_t draw_rows(const HeadDropout& dropout, std::int64_t query, std::int64_t octet) {
  const int lane = threadIdx.x % warp_threads;
  return kept_keys<4>(dropout, query + lane % 16, octet + lane / 16 * 4);
}
/// Selects, from the draws of all lanes, the pairs of 32 keys from key 32 half_tile on, in row g + 8 half. In tile j, p
/// = 4 j.
__device__ inline std::uint32_t pairs_of_row(std::uint32_t drawn, int half_tile, int half) {
  const int lane = threadIdx.x % warp_threads;
  return __shfl_sync(all_lanes, drawn, lane / 4 + 8 * half + 16 * half_tile) << lane % 4;
}

/// Draws this lane's share of the bits for 32 queries and 16 keys: those of one query.
__device__ inline std::uint32_t draw_columns(const HeadDropout& dropout, std::int64_t query, std::int64_t octet) {
  return kept_keys<2>(dropout, query + threadIdx.x % warp_threads, octet);
}
/// Selects, from the draws of all lanes, pairs for rows of 16 keys and columns of 32 queries. In tile j and row g + 8
/// half, p = 4 half + j.
__device__ inline std::uint32_t pairs_of_columns(std::uint32_t own) {
  const int lane = threadIdx.x % warp_threads, g = lane / 4, t = lane % 4;
  // Words of an even lane and the next: keys 0, 2, 4 and 6 of both octets, then the other keys. The same of the next
  // query follow.
  const std::uint32_t both = gpu::permute_bytes(own, __shfl_xor_sync(all_lanes, own, 1), 0x7531);
  const int shift = g / 2 + (1 - g % 2) * 8;
  std::uint32_t pairs = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    pairs |= (__shfl_sync(all_lanes, both, 8 * j + 2 * t) << shift & 0x88008800U) >> j;
  }
  return pairs;
}

/// Words of one head's masks in memory (kept_mask_bytes), in the layout of kept_keys<4>. Counted from query 0 and key 0
/// of the problem. Those of padding queries are neither stored nor loaded.
class HeadMasks {
 public:
  __device__ HeadMasks(std::uint32_t* masks, const AttentionProblem& problem, std::int64_t sample, std::int64_t head)
      : row_words_(static_cast<int>((problem.keys + 63) / 64) * 2),
        queries_(static_cast<int>(problem.queries_of(sample))) {
    if (masks != nullptr) words_ = masks + (sample * problem.heads + head) * problem.queries * row_words_;
  }
  __device__ bool exist() const { return words_ != nullptr; }
  /// Stores what draw_rows returned for 16 queries and 64 keys.
  __device__ void store_rows(int query, int key, std::uint32_t drawn) const {
    const int lane = threadIdx.x % warp_threads, row = query + lane % 16;
    if (words_ != nullptr && row < queries_) words_[std::int64_t{row} * row_words_ + key / 32 + lane / 16] = drawn;
  }
  /// Returns what draw_columns would for 32 queries and 16 keys.
  __device__ std::uint32_t load_columns(int query, int key) const {
    const int row = query + threadIdx.x % warp_threads;
    if (row >= queries_) return 0;
    return words_[std::int64_t{row} * row_words_ + key / 32] << key % 32 / 2 & 0xff00ff00U;
  }

 private:
  std::uint32_t* words_ = nullptr;
  int row_words_, queries_;
};

}  // namespace trireme::cuda
