#pragma once

#include <cmath>

#include "cuda/kernels/flash_blocks.cuh"

namespace trireme::cuda {

// Softmax of the forward kernels, by a warp for 16 queries and a tile of keys, and their results.

/// Masks scores with minus infinity: 16 queries from `first` on, the tile of keys from `begin` on. No query attends to
/// more than `keys`.
__device__ inline void hide_unseen(const AttentionProblem& problem, std::int64_t sample, int keys, int first, int begin,
                                   float (&score)[key_tile / 8][4]) {
  const int lane = threadIdx.x % warp_threads;
  const int from[2] = {first_key(problem, sample, first + lane / 4), first_key(problem, sample, first + lane / 4 + 8)};
  const int seen[2] = {visible_keys(problem, keys, first + lane / 4),
                       visible_keys(problem, keys, first + lane / 4 + 8)};
#pragma unroll
  for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = begin + 8 * j + 2 * (lane % 4) + i % 2;
      if (key >= seen[i / 2] || key < from[i / 2]) score[j][i] = minus_infinity;
    }
  }
}
/// Adds ALiBi's biases to the same scores. `bias` is over the scale of the scores.
__device__ inline void add_biases(const HeadBias<float>& bias, int first, int begin, float (&score)[key_tile / 8][4]) {
  const int lane = threadIdx.x % warp_threads;
#pragma unroll
  for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[j][i] += bias(first + lane / 4 + 8 * (i / 2), begin + 8 * j + 2 * (lane % 4) + i % 2);
    }
  }
}
/// Row g + 8 half of the scores become exp(scale score) relative to the maximum so far, and `total` their sum. Returns
/// the factor for sums relative to the previous maximum.
__device__ inline float exponentials(float scale, int half, float (&score)[key_tile / 8][4], float& maximum,
                                     float& total) {
  float max_score = maximum;
#pragma unroll
  for (int j = 0; j < key_tile / 8; ++j) {
    max_score = Maximum<float>{}(max_score, Maximum<float>{}(score[j][2 * half], score[j][2 * half + 1]));
  }
  max_score = combine_row<Maximum<float>>(max_score);
  // Exponential of the difference, not of a fused x * scale - shift: exactly 1 if the maximum did not change.
  const float subtracted = max_score == minus_infinity ? 0 : max_score, shift = subtracted * scale;
  const float rescale = gpu::fast_exp2((maximum - subtracted) * scale);
  maximum = max_score;
  float added = 0;
#pragma unroll
  for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      score[j][i] = gpu::fast_exp2(score[j][i] * scale - shift);
      added += score[j][i];
    }
  }
  total = total * rescale + added;
  return rescale;
}

/// Turns scores into exponentials and, after dropout, into left factors for the values; rescales the sums where maxima
/// grew. Of the warp's row tile m from query `row` on, and the tile of keys from `begin` on: before `sure`, all queries
/// of the warp attend to keys not before their first; from `last` on, none does.
template <class T, int d, int rows>
__device__ void weigh(const AttentionProblem& problem, std::int64_t sample, const HeadDropout& dropout,
                      const HeadBias<float>& bias, float scale, int sure, int last, int row, int begin, int m,
                      float (&score)[key_tile / 8][4], float (&maximum)[2], float (&total)[2], float (&sum)[d / 8][4],
                      std::uint32_t (&probability)[key_tile / 16][rows][4]) {
  if (bias.slope != 0) add_biases(bias, row, begin, score);
  if (begin + key_tile > sure || first_key(problem, sample, row + warp_rows - 1) > begin) {
    hide_unseen(problem, sample, last, row, begin, score);
  }
  float rescale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rescale[half] = exponentials(scale, half, score, maximum[half], total[half]);
  }
  // Maxima rarely change after the first tiles.
  if (__ballot_sync(all_lanes, rescale[0] != 1 || rescale[1] != 1) != 0) {
#pragma unroll
    for (int j = 0; j < d / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[j][i] *= rescale[i / 2];
    }
  }
#pragma unroll
  for (int step = 0; step < key_tile / 16; ++step) pack_left<T>(score, step, probability[step][m]);
  if (problem.dropout.enabled()) {
    const std::uint32_t drawn = draw_rows(dropout, problem.first_query + row, (problem.first_key + begin) / 8);
#pragma unroll
    for (int i = 0; i < key_tile / 16; ++i) {
      const int half_tile = i / 2, half = i % 2;
      const std::uint32_t pairs = pairs_of_row(drawn, half_tile, half);
#pragma unroll
      for (int j = 0; j < 4; ++j) probability[2 * half_tile + j / 2][m][2 * (j % 2) + half] &= kept_mask(pairs, 4 * j);
    }
  }
}

/// Writes the results of the warp's 16 queries from `row` on: attention to `out` through the warp's `staging`, or
/// joined with what `joined` holds, and the log-sum-exp.
template <class T, int d>
__device__ void store_attention(const AttentionProblem& problem, std::int64_t sample, std::int64_t head, int row,
                                const float (&maximum)[2], const float (&total)[2], float (&sum)[d / 8][4], T* staging,
                                const AllHeads<T>& out, const AllHeads<float>& joined, float* log_sum_exp) {
  const int lane = threadIdx.x % warp_threads;
  const bool merge = problem.results == AttentionResults::merge;
  const int end_queries = static_cast<int>(problem.queries_of(sample));  // not kept, for lack of registers
  float* statistics = log_sum_exp + (sample * problem.heads + head) * problem.queries;
  float kept[2] = {0, 0}, lse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = row + lane / 4 + 8 * half;
    const float added = combine_row<Plus<float>>(total[half]), denominator = query < end_queries ? added : 0;
    float factor = denominator == 0 ? 0 : problem.dropout.scale / denominator;
    lse[half] = maximum[half] * static_cast<float>(problem.scale) + std::log(denominator);
    if (merge && query < problem.queries) {
      const float before = statistics[query], max_lse = Maximum<float>{}(before, lse[half]);
      if (before != minus_infinity || lse[half] != minus_infinity) {
        const float both = max_lse + std::log(std::exp(before - max_lse) + std::exp(lse[half] - max_lse));
        kept[half] = std::exp(before - both);
        factor *= std::exp(lse[half] - both);
        lse[half] = both;
      }
    }
#pragma unroll
    for (int j = 0; j < d / 8; ++j) {
      sum[j][2 * half] *= factor;
      sum[j][2 * half + 1] *= factor;
    }
  }
  __syncwarp();  // all lanes have read the statistics
  for (int half = 0; half < 2; ++half) {
    const int query = row + lane / 4 + 8 * half;
    if (lane % 4 == 0 && query < problem.queries) statistics[query] = lse[half];
  }
  if (merge)
    join_sums<d>(sum, kept, row, problem.queries, joined.at(sample, head));
  else
    store_sums<d>(sum, row, problem.queries, staging, out.at(sample, head));
}

}  // namespace trireme::cuda
