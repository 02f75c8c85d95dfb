#pragma once

#include "cuda/kernels/vec8.cuh"

namespace trireme::cuda {

constexpr int warp_threads = 32;
constexpr unsigned all_lanes = 0xffffffffU;
constexpr int warps = block_threads / warp_threads;

// For kernels with one warp per row.
__device__ inline std::int64_t own_row() { return global_thread() / warp_threads; }
__device__ inline std::int64_t own_lane() { return threadIdx.x % warp_threads; }
constexpr std::int64_t row_blocks(std::int64_t rows) { return (rows + warps - 1) / warps; }

template <class A>
struct Plus {
  __device__ A operator()(A a, A b) const { return a + b; }
};
/// Returns the larger number; for a number and NaN, the number.
template <class A>
struct Maximum {
  __device__ A operator()(A a, A b) const { return std::fmax(a, b); }
};

/// The values of each `lanes` neighbouring lanes combined, for every one of them; all lanes call it.
template <class Combine, int lanes = warp_threads, class A>
__device__ A warp_combine(A value) {
  for (unsigned mask = lanes / 2; mask > 0; mask /= 2) {
    value = Combine{}(value, __shfl_xor_sync(all_lanes, value, mask));
  }
  return value;
}
template <class A>
__device__ A warp_sum(A value) {
  return warp_combine<Plus<A>>(value);
}

template <class A>
struct WarpValues {
  A values[warps];
};
/// The values of a block of block_threads threads combined in a fixed order, for each of them; all threads call it.
template <class Combine, class A>
__device__ A block_combine(A value) {
  auto& of_warp = gpu::shared<WarpValues<A>>();
  value = warp_combine<Combine>(value);
  if (threadIdx.x % warp_threads == 0) of_warp.values[threadIdx.x / warp_threads] = value;
  __syncthreads();
  value = of_warp.values[0];
  for (int warp = 1; warp < warps; ++warp) value = Combine{}(value, of_warp.values[warp]);
  __syncthreads();
  return value;
}

// Sums over rows, in two kernels: blocks of `chunk` rows are summed column by column; then the blocks' sums are added
// in order. The partition depends only on the number of rows, so every run gives the same bits.

struct RowChunks {
  std::int64_t rows, chunk, count;
  /// At most 256 chunks, of at least 32 rows except the last: if a row has few blocks (three for 768 columns), fewer
  /// chunks would leave multiprocessors idle.
  explicit RowChunks(std::int64_t all) : rows(all) {
    constexpr std::int64_t max_chunks = 256;
    chunk = (all + max_chunks - 1) / max_chunks < 32 ? 32 : (all + max_chunks - 1) / max_chunks;
    count = (all + chunk - 1) / chunk;
  }
  __device__ std::int64_t begin(std::int64_t i) const { return i * chunk; }
  __device__ std::int64_t end(std::int64_t i) const { return (i + 1) * chunk < rows ? (i + 1) * chunk : rows; }
};

/// Columns of a block of sum_rows, and how many of its rows are summed side by side.
constexpr int tile_vec8s = 32, tile_columns = 8 * tile_vec8s, row_lanes = block_threads / tile_vec8s;
constexpr std::int64_t column_tiles(std::int64_t columns) { return (columns + tile_columns - 1) / tile_columns; }

template <class A, int sums>
struct RowSums {
  A of[sums][row_lanes][tile_columns];
};

/// For a grid of chunks.count column_tiles(h) blocks. `term(fetch(row, vec8), row, vec8, value)` adds to value[s][c]
/// for column 8 vec8 + c. partials[chunk, s, column] = the sum of these over the rows of a chunk. Several rows are
/// fetched before the first is waited for. [count, sums, h]
template <int sums, class A, class Fetch, class Term>
__device__ void sum_rows(const RowChunks& chunks, std::int64_t h, A* partials, const Fetch& fetch, const Term& term) {
  const std::int64_t tiles = column_tiles(h), tile = blockIdx.x % tiles, chunk = blockIdx.x / tiles;
  const int lane = threadIdx.x / tile_vec8s, vec8_in_tile = threadIdx.x % tile_vec8s;
  const std::int64_t vec8 = tile * tile_vec8s + vec8_in_tile;
  A value[sums][8]{};
  if (8 * vec8 < h) {
    constexpr int at_once = sizeof(A) == 4 ? 4 : 1;
    const std::int64_t end = chunks.end(chunk);
    for (std::int64_t first = chunks.begin(chunk) + lane; first < end; first += at_once * row_lanes) {
      decltype(fetch(first, vec8)) fetched[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const std::int64_t row = first + i * row_lanes;
        if (row < end) fetched[i] = fetch(row, vec8);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const std::int64_t row = first + i * row_lanes;
        if (row < end) term(fetched[i], row, vec8, value);
      }
    }
  }
  auto& all = gpu::shared<RowSums<A, sums>>();
  for (int s = 0; s < sums; ++s) {
    for (int c = 0; c < 8; ++c) all.of[s][lane][8 * vec8_in_tile + c] = value[s][c];
  }
  __syncthreads();
  const std::int64_t column = tile * tile_columns + threadIdx.x;
  if (column >= h) return;
  for (int s = 0; s < sums; ++s) {
    A total = 0;
    for (int i = 0; i < row_lanes; ++i) total += all.of[s][i][threadIdx.x];
    partials[(chunk * sums + s) * h + column] = total;
  }
}

template <class A>
struct WarpColumns {
  A of[warps][warp_threads];
};
/// first += the sums over chunks of partials[., 0, .], second += those of partials[., 1, .] if `sums` is 2. partials
/// [count, sums, columns]. A block takes 32 numbers, whose chunks its warps sum in parallel.
template <class A>
__global__ void __launch_bounds__(block_threads)
    add_chunks_kernel(std::int64_t count, std::int64_t sums, std::int64_t columns, const A* partials, A* first,
                      A* second) {
  auto& warp_sums = gpu::shared<WarpColumns<A>>();
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const std::int64_t index = std::int64_t{blockIdx.x} * warp_threads + lane, stride = sums * columns;
  A total = 0;
  if (index < stride) {
#pragma unroll 8
    for (std::int64_t chunk = warp; chunk < count; chunk += warps) {
      total += partials[chunk * stride + index];
    }
  }
  warp_sums.of[warp][lane] = total;
  __syncthreads();
  if (warp != 0 || index >= stride) return;
  for (int other = 1; other < warps; ++other) total += warp_sums.of[other][lane];
  *(index < columns ? first + index : second + (index - columns)) += total;
}
/// `second` may be null: then there is one sum.
template <class A>
void add_chunks(Stream& stream, std::int64_t count, std::int64_t columns, const A* partials, A* first,
                A* second = nullptr) {
  const std::int64_t sums = second == nullptr ? 1 : 2;
  gpu::launch(stream, {"add_chunks", (sums * columns + warp_threads - 1) / warp_threads, block_threads},
              add_chunks_kernel<A>, count, sums, columns, partials, first, second);
}

}  // namespace trireme::cuda
