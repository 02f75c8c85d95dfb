#include "src/backend/kernels/reduce.hpp"

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Reads each element once. The norm of all gradients is computed with it. The norm also shows whether an element is not
// finite, and the optimizer applies the factors of loss scale and clipping as it reads them.

/// Elements that a block sums to one number.
constexpr std::int64_t block_elements = 16384;

template <class T>
__global__ void __launch_bounds__(block_threads)
    sum_block_kernel(std::int64_t n, const T* x, bool squares, double* partials) {
  double total = 0;
  const std::int64_t first = blockIdx.x * (block_elements / 8);
  for (std::int64_t i = threadIdx.x; i < block_elements / 8; i += block_threads) {
    const Vec8 range = vec8_at(first + i, n);
    if (range.size <= 0) break;
    Accumulation<T> value[8];
    load(x + range.begin, range.size, value);
    for (const double v : value) total += squares ? v * v : v;
  }
  total = block_combine<Plus<double>>(total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

/// result += the sum of the blocks' numbers; one block.
__global__ void __launch_bounds__(block_threads)
    add_blocks_kernel(std::int64_t blocks, const double* partials, double* result) {
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < blocks; i += block_threads) total += partials[i];
  total = block_combine<Plus<double>>(total);
  if (threadIdx.x == 0) *result += total;
}

class CudaReduce final : public ReduceKernels {
 public:
  explicit CudaReduce(Scratch scratch) : scratch_(std::move(scratch)) {}

  void sum_squares(Stream& stream, ConstTensorView x, TensorView result) override {
    check_reduction("sum_squares", result);
    reduce(stream, x, true, result);
  }
  void sum(Stream& stream, ConstTensorView x, TensorView result) override {
    check_reduction("sum", result);
    reduce(stream, x, false, result);
  }

 private:
  void reduce(Stream& stream, ConstTensorView x, bool squares, TensorView result) {
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t n = x.numel(), blocks = (n + block_elements - 1) / block_elements;
      if (n == 0) return;
      const Buffer scratch = scratch_(stream, static_cast<std::size_t>(blocks) * sizeof(double));
      double* partials = reinterpret_cast<double*>(scratch.data());
      gpu::launch(stream, {"sum_block", blocks, block_threads}, sum_block_kernel<T>, n, x.as<T>(), squares, partials);
      gpu::launch(stream, {"add_blocks", 1, block_threads}, add_blocks_kernel, blocks, partials, result.as<double>());
    });
  }

  Scratch scratch_;
};

}  // namespace

std::unique_ptr<ReduceKernels> make_reduce(Scratch scratch) { return std::make_unique<CudaReduce>(std::move(scratch)); }

}  // namespace trireme::cuda
