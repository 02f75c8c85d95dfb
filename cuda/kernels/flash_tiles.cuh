#pragma once

#include <gpu/mma.cuh>
#include <numeric>

#include "cuda/kernels/heads.cuh"
#include "cuda/kernels/sums.cuh"

namespace trireme::cuda {

// Building blocks of the flash attention kernels. A warp owns 16 rows, queries or keys. Of a 16 x 8 tile of sums a lane
// has rows g and g + 8, columns 2t and 2t + 1; g = lane / 4, t = lane % 4.

constexpr int warp_rows = 16;
constexpr float log2_e = 1.44269504088896341F, minus_infinity = -__builtin_huge_valf();

/// Rows in shared memory are padded by 16 bytes, so ldmatrix reads every bank once.
template <int d>
constexpr int row_stride = d + 8;

/// Begins to copy rows [begin, begin + count), zeros from `end` on, to the addresses place(row, column); by `threads`
/// threads, numbered from 0. Uses 32-bit arithmetic where possible, as 64-bit products take several instructions.
template <int d, int count, int threads, class T, class Place>
__device__ void copy_rows(const Rows<const T>& from, int begin, std::int64_t end, int thread, Place&& place) {
  constexpr int pieces = d / 8, rounds = pieces / std::gcd(threads, pieces), rows_of_rounds = threads * rounds / pieces;
  static_assert(count % rows_of_rounds == 0);
  const auto stride_bytes = static_cast<std::uint32_t>(from.stride * sizeof(T));
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const int piece = round * threads + thread, column = piece % pieces * 8;
    const auto* start = reinterpret_cast<const char*>(from.data + column);
#pragma unroll
    for (int i = 0; i < count / rows_of_rounds; ++i) {
      const int row = piece / pieces + i * rows_of_rounds;
      const bool valid = begin + row < static_cast<int>(end);
      gpu::copy_async(place(row, column), start + gpu::wide_product(valid ? begin + row : 0, stride_bytes), valid);
    }
  }
}
/// Begins to copy them to padded rows, by default with the entire block.
template <int d, int count, int threads, class T>
__device__ void copy_tile(const Rows<const T>& from, int begin, std::int64_t end, T* to, int thread = threadIdx.x) {
  copy_rows<d, count, threads>(from, begin, end, thread,
                               [&](int row, int column) { return to + row * row_stride<d> + column; });
}

/// Columns [16 step, 16 step + 16) of the warp's rows, as the left factor.
template <int d, class T>
__device__ void load_left(const T* rows, int step, std::uint32_t (&a)[4]) {
  const int lane = threadIdx.x % warp_threads;
  gpu::load_matrices(rows + lane % 16 * row_stride<d> + 16 * step + lane / 16 * 8, a);
}
/// sum[m][j] += left[m] x (rows 8j to 8j + 7 of the tile), for columns [16 step, 16 step + 16): products of rows with
/// rows.
template <int d, int rows, int tiles, class T>
__device__ void multiply_rows(const std::uint32_t (&a)[rows][4], const T* tile, int step,
                              float (&sum)[rows][tiles][4]) {
  const int lane = threadIdx.x % warp_threads;
#pragma unroll
  for (int j = 0; j < tiles; j += 2) {
    std::uint32_t b[4];
    gpu::load_matrices(tile + (8 * j + lane / 16 * 8 + lane % 8) * row_stride<d> + 16 * step + lane / 8 % 2 * 8, b);
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      gpu::multiply_add<T>(a[m], b[0], b[1], sum[m][j]);
      gpu::multiply_add<T>(a[m], b[2], b[3], sum[m][j + 1]);
    }
  }
}
/// sum[m][j] += left[m] x (columns 8j to 8j + 7 of rows [16 step, 16 step + 16) of the tile).
template <int d, int rows, class T>
__device__ void multiply_columns(const std::uint32_t (&a)[rows][4], const T* tile, int step,
                                 float (&sum)[rows][d / 8][4]) {
  const int lane = threadIdx.x % warp_threads;
#pragma unroll
  for (int j = 0; j < d / 8; j += 2) {
    std::uint32_t b[4];
    gpu::load_transposed(tile + (16 * step + lane % 16) * row_stride<d> + 8 * j + lane / 16 * 8, b);
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      gpu::multiply_add<T>(a[m], b[0], b[1], sum[m][j]);
      gpu::multiply_add<T>(a[m], b[2], b[3], sum[m][j + 1]);
    }
  }
}
/// Product with one left factor.
template <int d, int tiles, class T>
__device__ void multiply_rows(const std::uint32_t (&a)[4], const T* tile, int step, float (&sum)[tiles][4]) {
  multiply_rows<d>(reinterpret_cast<const std::uint32_t(&)[1][4]>(a), tile, step,
                   reinterpret_cast<float(&)[1][tiles][4]>(sum));
}
template <int d, class T>
__device__ void multiply_columns(const std::uint32_t (&a)[4], const T* tile, int step, float (&sum)[d / 8][4]) {
  multiply_columns<d>(reinterpret_cast<const std::uint32_t(&)[1][4]>(a), tile, step,
                      reinterpret_cast<float(&)[1][d / 8][4]>(sum));
}
/// Sums, rounded to T, as the left factor: columns [16 step, 16 step + 16).
template <class T, int tiles>
__device__ void pack_left(const float (&sum)[tiles][4], int step, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float(&from)[4] = sum[2 * step + r / 2];
    a[r] = gpu::pack<T>(from[2 * (r % 2)], from[2 * (r % 2) + 1]);
  }
}

/// Combined over the four lanes that share a row.
template <class Combine>
__device__ float combine_row(float value) {
  value = Combine{}(value, __shfl_xor_sync(all_lanes, value, 1));
  return Combine{}(value, __shfl_xor_sync(all_lanes, value, 2));
}

/// The warp's rows from `begin` on = the sums, rounded to T, through the warp's shared memory.
template <int d, class T>
__device__ void store_sums(const float (&sum)[d / 8][4], std::int64_t begin, std::int64_t end, T* staging,
                           const Rows<T>& to) {
  constexpr int pieces = d / 8;
  const int lane = threadIdx.x % warp_threads;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < d / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      T* address = staging + (lane / 4 + 8 * half) * row_stride<d> + 8 * j + 2 * (lane % 4);
      *reinterpret_cast<std::uint32_t*>(address) = gpu::pack<T>(sum[j][2 * half], sum[j][2 * half + 1]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < warp_rows * pieces / warp_threads; ++i) {
    const int piece = i * warp_threads + lane, row = piece / pieces, column = piece % pieces * 8;
    if (begin + row < end) {
      *reinterpret_cast<SixteenBytes<T>*>(to.data + (begin + row) * to.stride + column) =
          *reinterpret_cast<const SixteenBytes<T>*>(staging + row * row_stride<d> + column);
    }
  }
}
/// The warp's rows from `begin` on = kept times their old values + the sums; not read where kept is 0.
template <int d>
__device__ void join_sums(const float (&sum)[d / 8][4], const float (&kept)[2], std::int64_t begin, std::int64_t end,
                          const Rows<float>& to) {
  struct alignas(8) Pair {
    float x, y;
  };
  const int lane = threadIdx.x % warp_threads;
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = begin + lane / 4 + 8 * half;
    if (row >= end) continue;
#pragma unroll
    for (int j = 0; j < d / 8; ++j) {
      auto* address = reinterpret_cast<Pair*>(to.data + row * to.stride + 8 * j + 2 * (lane % 4));
      Pair value{sum[j][2 * half], sum[j][2 * half + 1]};
      if (kept[half] != 0) {
        const Pair before = *address;
        value = {kept[half] * before.x + value.x, kept[half] * before.y + value.y};
      }
      *address = value;
    }
  }
}

}  // namespace trireme::cuda
