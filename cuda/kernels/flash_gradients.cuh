#pragma once

#include "cuda/kernels/flash_blocks.cuh"

namespace trireme::cuda {

// Gradients of scores, by a warp for 16 queries or keys, and results.

/// Keys, or queries, at a time, to save registers.
constexpr int gradient_columns = 32;

/// Statistics of the lane's two queries of the warp's from `first` on; those of its head begin at `statistics`.
template <class T>
__device__ void load_statistics(const BackwardInputs<T>& in, std::int64_t statistics, int first, int queries,
                                float (&lse)[2], float (&row_dot)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + static_cast<int>(threadIdx.x) % warp_threads / 4 + 8 * half;
    const bool there = query < queries;
    lse[half] = there ? in.log_sum_exp[statistics + query] * log2_e : 0;
    row_dot[half] = there ? in.row_dot[statistics + query] : 0;
  }
}

/// score = probability (dropout(dprobability) - row_dot), 0 where it is hidden: of the warp's queries from `first` on,
/// and keys from `begin` on. Before `sure` all of the warp attend to keys not before their first; none attends to more
/// than `keys`. `drawn` is of draw_rows, for the tile of the keys.
__device__ inline void score_gradients(const AttentionProblem& problem, std::int64_t sample,
                                       const HeadBias<float>& bias, float scale, int sure, int keys, int first,
                                       int begin, std::uint32_t drawn, const float (&lse)[2], const float (&row_dot)[2],
                                       float (&score)[gradient_columns / 8][4],
                                       float (&dprobability)[gradient_columns / 8][4]) {
  constexpr int columns = gradient_columns;
  const int lane = threadIdx.x % warp_threads;
  if (bias.slope != 0) {
#pragma unroll
    for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[j][i] += bias(first + lane / 4 + 8 * (i / 2), begin + 8 * j + 2 * (lane % 4) + i % 2);
      }
    }
  }
  if (problem.dropout.enabled()) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t pairs = pairs_of_row(drawn, begin % key_tile / columns, half);
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (!is_kept(pairs, 4 * j, i)) dprobability[j][2 * half + i] = 0;
        }
      }
    }
  }
  std::uint32_t visible_scores = ~0U;  // a bit for each
  if (begin + columns > sure || first_key(problem, sample, first + warp_rows - 1) > begin) {
    const int from[2] = {first_key(problem, sample, first + lane / 4),
                         first_key(problem, sample, first + lane / 4 + 8)};
    const int seen[2] = {visible_keys(problem, keys, first + lane / 4),
                         visible_keys(problem, keys, first + lane / 4 + 8)};
    visible_scores = 0;
#pragma unroll
    for (int bit = 0; bit < columns / 2; ++bit) {
      const int key = begin + 8 * (bit / 4) + 2 * (lane % 4) + bit % 2, half = bit / 2 % 2;
      if (key < seen[half] && key >= from[half]) visible_scores |= 1U << bit;
    }
  }
#pragma unroll
  for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool sees = (visible_scores >> (4 * j + i) & 1U) != 0;
      const float probability = gpu::fast_exp2(score[j][i] * scale - lse[i / 2]);
      score[j][i] = sees ? probability * (dprobability[j][i] * problem.dropout.scale - row_dot[i / 2]) : 0;
    }
  }
}

/// Writes the gradients of the warp's queries from `first` on, of which `sum` are over the scale: to `dq` through the
/// warp's `staging`, or added to `joined`.
template <class T, int d>
__device__ void store_query_gradients(const AttentionProblem& problem, std::int64_t sample, std::int64_t head,
                                      int first, float (&sum)[d / 8][4], T* staging, const AllHeads<T>& dq,
                                      const AllHeads<float>& joined) {
#pragma unroll
  for (int j = 0; j < d / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] *= static_cast<float>(problem.scale);
  }
  if (problem.results == AttentionResults::merge)
    join_sums<d>(sum, {1, 1}, first, problem.queries, joined.at(sample, head));
  else
    store_sums<d>(sum, first, problem.queries, staging, dq.at(sample, head));
}

/// Statistics of gradient_columns queries.
struct QueryStatistics {
  const float *lse, *row_dot;
  const int* first_key;
};
/// Those of a tile of `rows` queries.
template <int rows>
struct TileStatistics {
  __device__ QueryStatistics at(int row) const { return {lse + row, row_dot + row, first_key + row}; }
  float lse[rows], row_dot[rows];
  int first_key[rows];
};

/// End of the tiles of queries, from `tile` on, of `tile_rows` each, of which a query attends to
/// keys before `keys`.
__device__ inline int end_of_query_tiles(const AttentionProblem& problem, std::int64_t sample, int tile, int tiles,
                                         int tile_rows, int keys) {
  if (!problem.hides_earlier_keys()) return tiles;
  for (;;) {
    const int own = tile + static_cast<int>(threadIdx.x % warp_threads);
    const bool sees = own < tiles && first_key(problem, sample, own * tile_rows) < keys;
    const int count = __popc(__ballot_sync(all_lanes, sees));
    tile += count;
    if (count < warp_threads) return tile;
  }
}

/// Sets those of the queries from `begin` on, of which there are `queries`; by `rows` threads, numbered from 0.
template <class T, int rows>
__device__ void load_tile_statistics(const AttentionProblem& problem, const BackwardInputs<T>& in, std::int64_t sample,
                                     int head, int begin, int queries, unsigned thread, TileStatistics<rows>& to) {
  if (thread >= rows) return;
  const int query = begin + static_cast<int>(thread);
  const std::int64_t at = (sample * problem.heads + head) * problem.queries + query;
  const bool there = query < queries;
  to.lse[thread] = there ? in.log_sum_exp[at] * log2_e : -minus_infinity;
  to.row_dot[thread] = there ? in.row_dot[at] : 0;
  to.first_key[thread] = first_key(problem, sample, query);
}

/// score = probability (dropout(probability's gradient) - row_dot), and then probability = dropout's 1 / scale times
/// the dropped probability, 0 where it is hidden: of the warp's keys from `first` on and queries from `begin` on, with
/// their statistics. `probability` comes as its gradient.
__device__ inline void key_score_gradients(const AttentionProblem& problem, std::int64_t sample, int head,
                                           const HeadDropout& dropout, const HeadMasks& masks, float scale, int between,
                                           int first, int begin, const QueryStatistics& of,
                                           float (&score)[gradient_columns / 8][4],
                                           float (&probability)[gradient_columns / 8][4]) {
  constexpr int columns = gradient_columns;
  const int lane = threadIdx.x % warp_threads;
  if (problem.alibi_heads > 0) {
    const HeadBias<float> bias = bias_before_scale(problem, sample, head);
#pragma unroll
    for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[j][i] += bias(begin + 8 * j + 2 * (lane % 4) + i % 2, first + lane / 4 + 8 * (i / 2));
      }
    }
  }
  std::uint32_t pairs = ~0U;
  if (problem.dropout.enabled()) {
    pairs = pairs_of_columns(masks.exist()
                                 ? masks.load_columns(begin, first)
                                 : draw_columns(dropout, problem.first_query + begin, (problem.first_key + first) / 8));
  }
  std::uint32_t visible_scores = ~0U;  // a bit for each
  if ((problem.causal && begin + between < first + warp_rows - 1) || of.first_key[columns - 1] > first) {
    visible_scores = 0;
#pragma unroll
    for (int bit = 0; bit < columns / 2; ++bit) {
      const int column = 8 * (bit / 4) + 2 * (lane % 4) + bit % 2, key = first + lane / 4 + 8 * (bit / 2 % 2);
      const bool is_past = !problem.causal || key <= begin + column + between;
      if (is_past && key >= of.first_key[column]) visible_scores |= 1U << bit;
    }
  }
#pragma unroll
  for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * j + 2 * (lane % 4) + i % 2;
      const bool sees = (visible_scores >> (4 * j + i) & 1U) != 0, keep = is_kept(pairs, 4 * (i / 2) + j, i % 2);
      const float p = sees ? gpu::fast_exp2(score[j][i] * scale - of.lse[column]) : 0;
      score[j][i] = p * ((keep ? probability[j][i] : 0) * problem.dropout.scale - of.row_dot[column]);
      probability[j][i] = keep ? p : 0;
    }
  }
}

/// Writes the gradients of the warp's keys or values from `first` on, `factor` times the sums: to `gradient` through
/// the warp's `staging`, or added to `joined`.
template <class T, int d>
__device__ void store_key_gradients(const AttentionProblem& problem, std::int64_t sample, std::int64_t kv_head,
                                    int first, int keys, float factor, float (&sum)[d / 8][4], T* staging,
                                    const AllHeads<T>& gradient, const AllHeads<float>& joined) {
  const int lane = threadIdx.x % warp_threads;
#pragma unroll
  for (int j = 0; j < d / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Rows of padding, for which the scores were not masked, do not affect other rows.
      sum[j][i] = first + lane / 4 + 8 * (i / 2) >= keys ? 0 : sum[j][i] * factor;
    }
  }
  if (problem.results == AttentionResults::merge)
    join_sums<d>(sum, {1, 1}, first, problem.keys, joined.at(sample, kv_head));
  else
    store_sums<d>(sum, first, problem.keys, staging, gradient.at(sample, kv_head));
}

}  // namespace trireme::cuda
