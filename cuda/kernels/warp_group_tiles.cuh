#pragma once

#include <gpu/warp_groups.cuh>

#include "cuda/kernels/flash_blocks.cuh"

namespace trireme::cuda {

// Blocks whose warp groups own 64 rows each, of queries or keys (Shah et al. 2024, arXiv:2407.08608). One more group
// copies tiles of the others' rows to shared memory, and gives most of its registers away. A group's products read a
// tile once.

constexpr int group_warps = gpu::group_threads / warp_threads, group_rows = group_warps * warp_rows;

/// A tile of `rows` rows: blocks of 64 channels, swizzled. With 96 channels half of the second is unused.
constexpr int block_columns = 64;
template <int d, int rows>
constexpr int tile_elements = (d + block_columns - 1) / block_columns* rows* block_columns;
/// Offset of 16 channels from 16 step on in a tile of `rows` rows.
template <int rows>
__device__ constexpr int element_of_step(int step) {
  constexpr int steps = block_columns / 16;
  return step / steps * rows * block_columns + step % steps * 16;
}

/// Begins to copy rows [begin, begin + rows) to a tile, zeros from `end` on; by the 128 threads of a group.
template <int d, int rows, class T>
__device__ void copy_to_tile(const Rows<const T>& from, int begin, int end, T* to) {
  // There are too few registers to keep the addresses of the thread's copies.
  const int thread = gpu::forgotten(threadIdx.x) % gpu::group_threads;
  copy_rows<d, rows, gpu::group_threads>(from, begin, end, thread, [&](int row, int column) {
    const int chunk = column % block_columns / 8 ^ row % 8;
    return to + column / block_columns * rows * block_columns + row * block_columns + chunk * 8;
  });
}

/// A block with `groups` groups that compute, `stage_count` stages, and elements of its own, all in shared memory.
template <int groups, int stage_count, int elements_of_stage, int own>
struct GroupBlock {
  static_assert(groups == 2 || groups == 3);
  static_assert(elements_of_stage * static_cast<int>(sizeof(bf16)) % gpu::swizzle_bytes == 0);
  static constexpr int rows = groups * group_rows, warps = groups * group_warps, stages = stage_count;
  static constexpr int threads = (groups + 1) * gpu::group_threads;
  /// Registers of a thread that copies, and of one that computes: as many as a launch gives to all.
  static constexpr int copying_registers = groups == 2 ? 40 : 32, computing_registers = groups == 2 ? 232 : 160;
  static constexpr int launch_registers = 65536 / threads / 8 * 8;  // an increase waits for those given up
  static_assert(groups * computing_registers + copying_registers <= (groups + 1) * launch_registers);
  static constexpr int stage_elements = elements_of_stage, own_elements = own;
  static constexpr std::size_t shared_bytes = gpu::swizzle_bytes + sizeof(bf16) * (stages * stage_elements + own) +
                                              (2 * stages + groups) * sizeof(gpu::Barrier);
};
/// One whose groups own queries: a stage is a tile of keys and one of values, its own are its rows, padded.
template <int d, int groups>
using QueryBlock =
    GroupBlock<groups, d == 64 ? 4 : 3, 2 * tile_elements<d, key_tile>, groups * group_rows * row_stride<d>>;

/// The shared memory of a block. The whole block constructs it.
template <class T, class Block>
class GroupStages {
 public:
  __device__ GroupStages() {
    const auto dynamic = reinterpret_cast<std::uintptr_t>(gpu::dynamic_shared<T>());
    const auto skipped_bytes = static_cast<int>(gpu::swizzle_bytes - dynamic % gpu::swizzle_bytes);
    stages_ = gpu::dynamic_shared<T>() + gpu::forgotten(skipped_bytes) / static_cast<int>(sizeof(T));
    own = stages_ + Block::stages * Block::stage_elements;
    filled_ = reinterpret_cast<gpu::Barrier*>(own + Block::own_elements);
    emptied_ = filled_ + Block::stages;
    group = emptied_ + Block::stages + threadIdx.x / gpu::group_threads;
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < Block::stages; ++stage) {
        gpu::initialise(filled_[stage], gpu::group_threads);
        gpu::initialise(emptied_[stage], Block::warps);
      }
      for (gpu::Barrier* of = group; of < group + Block::warps / group_warps; ++of) {
        gpu::initialise(*of, gpu::group_threads);
      }
    }
    __syncthreads();
  }

  /// Fills the stages `count` times; by the group that copies. copy(n, stage) begins the copies of number n. Waits
  /// until a stage was emptied before it fills it again.
  template <class Copy>
  __device__ void fill(int count, Copy&& copy) {
    constexpr int ahead = Block::stages - 1;  // so many are being copied
    for (int n = 0; n < count + ahead; ++n) {
      if (n >= ahead) {
        gpu::wait_for_copies<ahead - 1>();
        gpu::publish_to_products();
        gpu::arrive(filled_[(n - ahead) % Block::stages]);
      }
      if (n < count) {
        const int stage = n % Block::stages;
        if (n >= Block::stages) gpu::wait_for_phase(emptied_[stage], n / Block::stages - 1);
        copy(n, stages_ + stage * Block::stage_elements);
      }
      gpu::commit_copies();
    }
  }
  /// Fills them with the tiles of keys and values from `first` on, zeros from `end` on, as copy_keys does.
  template <int d>
  __device__ void fill_keys(const Rows<const T>& k, const Rows<const T>& v, int first, int end) {
    fill(end > first ? static_cast<int>(tiles_of(end - first, key_tile)) : 0, [&](int n, T* to) {
      copy_to_tile<d, key_tile>(k, first + n * key_tile, end, to);
      copy_to_tile<d, key_tile>(v, first + n * key_tile, end, to + tile_elements<d, key_tile>);
    });
  }

  /// The current stage; by a group that computes. Waits until it is filled.
  __device__ const T* wait() {
    gpu::wait_for_phase(filled_[stage_], round_);
    return stages_ + stage_ * Block::stage_elements;
  }
  /// Gives back the current stage, which all lanes have read.
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % warp_threads == 0) gpu::arrive(emptied_[stage_]);
    if (++stage_ == Block::stages) {
      stage_ = 0;
      ++round_;
    }
  }

  /// Barrier of the group's threads.
  gpu::Barrier* group;
  T* own;

 private:
  T* stages_;
  gpu::Barrier *filled_, *emptied_;
  int stage_ = 0, round_ = 0;
};

/// Loads the warp's rows from `begin` on, zeros from `end` on, as left factors, through its shared memory `own`.
template <int d, class T>
__device__ void load_group_rows(const Rows<const T>& from, int begin, int end, T* own,
                                std::uint32_t (&left)[d / 16][4]) {
  __syncwarp();
  copy_tile<d, warp_rows, warp_threads>(from, begin, end, own, threadIdx.x % warp_threads);
  gpu::commit_copies();
  gpu::wait_for_copies<0>();
  __syncwarp();
#pragma unroll
  for (int step = 0; step < d / 16; ++step) load_left<d>(own, step, left[step]);
}

// Products of the group's 64 rows, between begin_products and finish_products.

/// score = rows x tile^T; the tile has 8 tiles rows.
template <int d, int tiles, class T>
__device__ void multiply_group_rows(const std::uint32_t (&rows)[d / 16][4], const gpu::SharedFactor<T>& tile,
                                    float (&score)[tiles][4]) {
#pragma unroll
  for (int step = 0; step < d / 16; ++step) {
    gpu::multiply_add_group<T, 8 * tiles, false>(rows[step], tile, element_of_step<8 * tiles>(step), score, step > 0);
  }
}
/// The same of 64 rows in a tile.
template <int d, int tiles, class T>
__device__ void multiply_group_rows(const gpu::SharedFactor<T>& rows, const gpu::SharedFactor<T>& tile,
                                    float (&score)[tiles][4]) {
#pragma unroll
  for (int step = 0; step < d / 16; ++step) {
    gpu::multiply_add_group<T, 8 * tiles>(rows, element_of_step<group_rows>(step), tile,
                                          element_of_step<8 * tiles>(step), score, step > 0);
  }
}
/// sum += left x tile; the tile has 16 steps rows.
template <int d, int steps, class T>
__device__ void multiply_group_columns(const std::uint32_t (&left)[steps][1][4], const gpu::SharedFactor<T>& tile,
                                       float (&sum)[d / 8][4]) {
  constexpr int last_columns = d % block_columns == 0 ? block_columns : d % block_columns;
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int begin = 0; begin < d; begin += block_columns) {
      const int element = (begin * steps + step * block_columns) * 16;
      if (begin + block_columns <= d) {
        gpu::multiply_add_group<T, block_columns, true>(
            left[step][0], tile, element, reinterpret_cast<float(&)[block_columns / 8][4]>(sum[begin / 8]));
      } else {
        gpu::multiply_add_group<T, last_columns, true>(left[step][0], tile, element,
                                                       reinterpret_cast<float(&)[last_columns / 8][4]>(sum[begin / 8]));
      }
    }
  }
}

}  // namespace trireme::cuda
