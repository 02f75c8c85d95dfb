#include <gpu/mma.cuh>

#include "tests/kernels/mma_kernels.hpp"

namespace trireme::test {
namespace {

template <class T>
struct Tiles {
  T a[16 * 24], b[16 * 24];
};

/// Rows are 24 elements apart in shared memory.
template <class T>
__global__ void multiply_tile_kernel(const T* a, const T* b, bool transposed, float* c) {
  auto& tiles = gpu::shared<Tiles<T>>();
  const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
  gpu::copy_async(tiles.a + lane / 2 * 24 + lane % 2 * 8, a + lane * 8, true);
  if (lane < 16) gpu::copy_async(tiles.b + (transposed ? lane / 2 * 24 + lane % 2 * 8 : lane * 24), b + lane * 8, true);
  gpu::commit_copies();
  gpu::wait_for_copies<0>();
  __syncwarp();
  std::uint32_t left[4], right[4];
  gpu::load_matrices(tiles.a + lane % 16 * 24 + lane / 16 * 8, left);
  if (transposed)
    gpu::load_matrices(tiles.b + lane % 8 * 24 + lane / 8 % 2 * 8, right);
  else
    gpu::load_transposed(tiles.b + lane % 16 * 24, right);
  float sum[4];
  for (unsigned i = 0; i < 4; ++i) sum[i] = c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  gpu::multiply_add<T>(left, right[0], right[1], sum);
  for (unsigned i = 0; i < 4; ++i) c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sum[i];
}

template <class T>
__global__ void pack_pair_kernel(float low, float high, std::uint32_t* both) {
  if (threadIdx.x == 0) *both = gpu::pack<T>(low, high);
}

__global__ void copy_in_groups_kernel(const float* x, float* y) {
  if (threadIdx.x != 0) return;
  auto* memory = gpu::dynamic_shared<float>();
  gpu::copy_async(memory, x, true);
  gpu::commit_copies();
  gpu::copy_async(memory + 4, x + 4, true);
  gpu::copy_async(memory + 8, x, false);
  gpu::commit_copies();
  gpu::wait_for_copies<1>();
  for (int i = 0; i < 4; ++i) y[i] = memory[i];
  gpu::wait_for_copies<0>();
  for (int i = 4; i < 12; ++i) y[i] = memory[i];
}

/// Calls function.operator()<T>().
template <class Function>
void dispatch(DType dtype, Function&& function) {
  if (dtype == DType::bf16) {
    function.template operator()<bf16>();
  } else {
    function.template operator()<fp16>();
  }
}

}  // namespace

void multiply_tile(Stream& stream, DType dtype, const void* a, const void* b, bool transposed, float* c) {
  dispatch(dtype, [&]<class T>() {
    gpu::launch(stream, {"multiply_tile", 1, 32}, multiply_tile_kernel<T>, static_cast<const T*>(a),
                static_cast<const T*>(b), transposed, c);
  });
}

void pack_pair(Stream& stream, DType dtype, float low, float high, std::uint32_t* both) {
  dispatch(dtype, [&]<class T>() { gpu::launch(stream, {"pack_pair", 1, 32}, pack_pair_kernel<T>, low, high, both); });
}

void copy_in_groups(Stream& stream, const float* x, float* y) {
  gpu::launch(stream, {"copy_in_groups", 1, 32, 12 * sizeof(float)}, copy_in_groups_kernel, x, y);
}

}  // namespace trireme::test
