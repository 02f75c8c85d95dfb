#pragma once

#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/heads.cuh"
#include "cuda/kernels/sums.cuh"

namespace trireme::cuda {

// Tiles of the scores, without tensor cores and for every head size. A warp owns some rows, queries or keys, and loops
// over tiles of the others, one per lane. Forward and backward of queries loop over the keys, backward of keys and
// values over the queries. No two blocks add to one sum, and the order of additions is fixed.
constexpr int attention_warps = 4, attention_threads = attention_warps * warp_threads;
constexpr int rows_of_warp = 4, rows_of_block = attention_warps * rows_of_warp;
constexpr int tile_rows = warp_threads;
constexpr int weights_of_warp = rows_of_warp * tile_rows;

constexpr std::int64_t row_tiles(std::int64_t rows) { return (rows + rows_of_block - 1) / rows_of_block; }

/// Sample, head and rows of a block, of `heads` heads.
struct BlockCoordinates {
  std::int64_t sample, head, begin;
  __device__ BlockCoordinates(std::int64_t rows, std::int64_t heads)
      : sample(blockIdx.x / row_tiles(rows) / heads),
        head(blockIdx.x / row_tiles(rows) % heads),
        begin(blockIdx.x % row_tiles(rows) * rows_of_block) {}
};

/// Queries and keys of a sample without padding.
struct Extent {
  std::int64_t sample, queries, keys;
  __device__ Extent(const AttentionProblem& problem, std::int64_t of_sample)
      : sample(of_sample), queries(problem.queries_of(sample)), keys(problem.keys_of(sample)) {}
};

/// First tile of keys that queries of the block attend to.
__device__ inline std::int64_t first_tile(const AttentionProblem& problem, const Extent& extent,
                                          const BlockCoordinates& block) {
  if (block.begin >= extent.queries) return 0;
  return problem.first_key_of(extent.sample, block.begin) / tile_rows * tile_rows;
}
/// End of the keys that queries of the block attend to.
__device__ inline std::int64_t visible_keys(const AttentionProblem& problem, const Extent& extent,
                                            const BlockCoordinates& block) {
  if (block.begin >= extent.queries) return 0;
  const std::int64_t seen = block.begin + rows_of_block + positions_between(problem);
  return problem.causal && seen < extent.keys ? seen : extent.keys;
}
/// Returns whether the query attends to the key; both may be beyond the end.
__device__ inline bool sees(const AttentionProblem& problem, const Extent& extent, std::int64_t query,
                            std::int64_t key) {
  return query < extent.queries && key < extent.keys &&
         (!problem.causal || key <= query + positions_between(problem)) &&
         key >= problem.first_key_of(extent.sample, query);
}
template <class A>
__device__ A dropout_factor(const AttentionProblem& problem, std::uint64_t head_key, std::int64_t sample,
                            std::int64_t query, std::int64_t key) {
  const Dropout& dropout = problem.dropout;
  const std::int64_t column = problem.first_key + key;
  const auto words = dropout_words(head_key, dropout.samples[sample], problem.first_query + query, column / 8);
  const bool keep = Dropout::bits_of_column(words, column) < dropout.keep_threshold;
  return keep ? static_cast<A>(dropout.scale) : A{0};
}

/// to[i][c] = factor from row begin + i, for i < count, 0 beyond `end`; by the entire block. Rows of `to` are `stride`
/// apart.
template <class T, class A>
__device__ void load_rows(const Rows<const T>& from, std::int64_t begin, int count, std::int64_t end, int d, int stride,
                          A factor, A* to) {
  for (int vec8 = threadIdx.x; vec8 < count * static_cast<int>(vec8s_of(d)); vec8 += attention_threads) {
    const int i = vec8 / static_cast<int>(vec8s_of(d));
    const Vec8 columns = vec8_at(vec8 % vec8s_of(d), d);
    A value[8]{};
    if (begin + i < end) load(from.data + (begin + i) * from.stride + columns.begin, columns.size, value);
    for (int c = 0; c < columns.size; ++c) to[i * stride + columns.begin + c] = factor * value[c];
  }
}
/// row begin + i = from[i], or += where `add`; R the type of results.
template <class R, class A>
__device__ void store_rows(const A* from, std::int64_t begin, std::int64_t end, int d, const Rows<R>& to, bool add) {
  for (int vec8 = threadIdx.x; vec8 < rows_of_block * static_cast<int>(vec8s_of(d)); vec8 += attention_threads) {
    const int i = vec8 / static_cast<int>(vec8s_of(d));
    const Vec8 columns = vec8_at(vec8 % vec8s_of(d), d);
    A value[8]{};
    for (int c = 0; c < columns.size; ++c) value[c] = from[i * d + columns.begin + c];
    if (begin + i >= end) continue;
    R* row = to.data + (begin + i) * to.stride + columns.begin;
    if (add) {
      A before[8];
      load(row, columns.size, before);
      for (int c = 0; c < columns.size; ++c) value[c] += before[c];
    }
    store(value, columns.size, row);
  }
}

template <class A>
__device__ A dot(const A* x, const A* y, int d) {
  A sum = 0;
  for (int c = 0; c < d; ++c) sum += x[c] * y[c];
  return sum;
}
/// to[c] = factor to[c] + sum over the tile's rows of weight[row] row[c]; by a warp, rows `stride` apart.
template <class A>
__device__ void add_weighted_rows(const A* weight, const A* rows, int d, int stride, A factor, A* to) {
  for (int c = threadIdx.x % warp_threads; c < d; c += warp_threads) {
    A sum = factor * to[c];
    for (int row = 0; row < tile_rows; ++row) sum += weight[row] * rows[row * stride + c];
    to[c] = sum;
  }
}

/// Elements of type A in a block's shared memory: `own` tensors of its own rows and two tiles of the others. Each pair
/// of rows has two sets of numbers, each row of the tile two statistics.
constexpr std::int64_t shared_numbers(int own, std::int64_t d) {
  return own * rows_of_block * d + 2 * tile_rows * (d + 1) + 2 * attention_warps * weights_of_warp + 2 * tile_rows;
}

}  // namespace trireme::cuda
