#pragma once

#include "cuda/kernels/flash_dropout.cuh"
#include "cuda/kernels/flash_tiles.cuh"

namespace trireme::cuda {

// Tiles of the others' rows pass through two stages in shared memory: one is copied while the other is in use. Forward
// and the gradient of queries loop over the keys, the gradients of keys and values over the queries. Backward thus
// computes scores twice, no two blocks add to one sum, and the summation order is fixed.

/// Sizes of the kernels whose blocks own queries.
constexpr int query_warps = 8, query_threads = query_warps * warp_threads, query_rows = query_warps * warp_rows;
constexpr int key_tile = 64;
template <int d>
constexpr int key_stage = 2 * key_tile* row_stride<d>;
static_assert(2 * key_tile == query_rows, "a stage also takes the block's own queries");

constexpr std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) { return (rows + tile - 1) / tile; }

/// Sample, head and rows of a block. The last rows, which attend to the most keys, come first.
struct QueryCoordinates {
  std::int64_t sample, head;
  int begin;
  __device__ explicit QueryCoordinates(const AttentionProblem& problem, int rows = query_rows) {
    const std::int64_t tiles = tiles_of(problem.queries, rows);
    sample = blockIdx.x / tiles / problem.heads;
    head = blockIdx.x / tiles % problem.heads;
    begin = static_cast<int>(tiles - 1 - blockIdx.x % tiles) * rows;
  }
};

/// End of the keys that a query of a sample with `keys` keys attends to. Rows of padding beside those of queries are
/// computed with q and dout of 0.
__device__ inline int visible_keys(const AttentionProblem& problem, int keys, int query) {
  const int seen = problem.causal ? query + static_cast<int>(positions_between(problem)) + 1 : keys;
  if (seen <= 0) return 0;
  return seen < keys ? seen : keys;
}

/// First key that a query attends to: AttentionProblem::first_key_of in few instructions. Beyond the last query it is
/// at least that one's.
__device__ inline int first_key(const AttentionProblem& problem, std::int64_t sample, int query) {
  constexpr unsigned whole = 1U << 30;  // also what a negative window becomes
  const auto window = static_cast<unsigned>(problem.window);
  const int left = static_cast<int>(window < whole ? window : whole);
  int first = query + (static_cast<int>(positions_between(problem)) - left);
  if (problem.first_visible != nullptr) {
    const int last = static_cast<int>(problem.queries) - 1;
    const int row = (query < last ? query : last) * static_cast<int>(problem.batch) + static_cast<int>(sample);
    const int document = problem.first_visible[row] - static_cast<int>(problem.first_key);
    if (document > first) first = document;
  }
  return first < 0 ? 0 : first;
}
/// First tile of the keys that a block's queries from `first` on attend to.
__device__ inline int first_key_tile(const AttentionProblem& problem, std::int64_t sample, int first) {
  return first_key(problem, sample, first) / key_tile * key_tile;
}

/// ALiBi's biases of a head over the scale of its scores, to which they are added before it.
__device__ inline HeadBias<float> bias_before_scale(const AttentionProblem& problem, std::int64_t sample,
                                                    std::int64_t head) {
  HeadBias<float> bias(problem, sample, head);
  bias.slope /= static_cast<float>(problem.scale);
  return bias;
}

/// End of the keys that `rows` rows from `first` on attend to; none if all of them are padding.
__device__ inline int visible_keys_of_rows(const AttentionProblem& problem, int queries, int keys, int first,
                                           int rows) {
  return first < queries ? visible_keys(problem, keys, first + rows - 1) : 0;
}

/// Begins to copy the tile of keys and values from `begin` on, with zeros from `end` on. Rows that no query of the
/// block attends to must not enter its sums, not even as 0 times an infinite value.
template <int d, int threads, class T>
__device__ void copy_keys(const Rows<const T>& k, const Rows<const T>& v, int begin, int end, T* stages,
                          int thread = threadIdx.x) {
  T* to = stages + begin / key_tile % 2 * key_stage<d>;
  copy_tile<d, key_tile, threads>(k, begin, end, to, thread);
  copy_tile<d, key_tile, threads>(v, begin, end, to + key_tile * row_stride<d>, thread);
}
/// The warp's own rows, as left factors.
template <int d, class T>
__device__ void load_own_rows(const T* rows, std::uint32_t (&left)[d / 16][4]) {
  const int warp = threadIdx.x / warp_threads;
#pragma unroll
  for (int step = 0; step < d / 16; ++step) load_left<d>(rows + warp * warp_rows * row_stride<d>, step, left[step]);
}

/// Calls `function` with the type and the number of channels of a problem that takes_flash_attention.
template <class Function>
void dispatch(DType dtype, std::int64_t d, Function&& function) {
  const auto with_type = [&]<class T>() {
    if (d == 64) return function.template operator()<T, 64>();
    if (d == 96) return function.template operator()<T, 96>();
    if (d == 128) return function.template operator()<T, 128>();
    function.template operator()<T, 192>();
  };
  if (dtype == DType::bf16)
    with_type.template operator()<bf16>();
  else
    with_type.template operator()<fp16>();
}
/// Results in the training type, or as sums to be merged: one of the two.
template <class T>
AllHeads<T> written(const AttentionProblem& problem, const Heads& heads) {
  if ((problem.results == AttentionResults::merge) != std::is_same_v<T, float>) return {};
  return all_heads<T>(heads);
}

template <int d>
constexpr std::size_t query_shared_bytes = 2 * key_stage<d> * sizeof(bf16);

}  // namespace trireme::cuda
