#include "src/backend/kernels/reduce.hpp"

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Reads each element once. Computes the norm of all gradients, which also reveals non-finite elements. The optimizer
// applies the factors of loss scale and clipping while reading.

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

/// Measure of an element: |x|^power; or with power 0 whether it is zero.
template <class T>
__global__ void __launch_bounds__(block_threads)
    sum_measures_kernel(std::int64_t n, const T* x, int power, double* partials) {
  double total = 0;
  const std::int64_t first = blockIdx.x * (block_elements / 8);
  for (std::int64_t i = threadIdx.x; i < block_elements / 8; i += block_threads) {
    const Vec8 range = vec8_at(first + i, n);
    if (range.size <= 0) break;
    Accumulation<T> value[8];
    load(x + range.begin, range.size, value);
    for (int c = 0; c < range.size; ++c) {
      const double v = value[c];
      const double size = v < 0 ? -v : v;
      double term = power == 0 ? (size == 0 ? 1.0 : 0.0) : size;
      for (int factor = 1; factor < power; ++factor) term *= size;
      total += term;
    }
  }
  total = block_combine<Plus<double>>(total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

/// partials = largest |x| of each block, or with one block and `result` result = max(result, x). A NaN is infinite.
template <class T>
__global__ void __launch_bounds__(block_threads)
    max_block_kernel(std::int64_t n, std::int64_t of_block, const T* x, double* partials, double* result) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double largest = 0;
  const std::int64_t first = blockIdx.x * of_block, end = first + of_block < n ? first + of_block : n;
  for (std::int64_t i = first + threadIdx.x; i < end; i += block_threads) {
    const double v = gpu::widen(x[i]);
    const double size = v < 0 ? -v : v;
    if (!(size <= largest)) largest = size == size ? size : infinity;
  }
  largest = block_combine<Maximum<double>>(largest);
  if (threadIdx.x != 0) return;
  if (result == nullptr) {
    partials[blockIdx.x] = largest;
  } else if (largest > *result) {
    *result = largest;
  }
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
  void sum_powers(Stream& stream, ConstTensorView x, int power, TensorView result) override {
    check_powers(result, power);
    sum_measures(stream, x, power, result);
  }
  void count_zeros(Stream& stream, ConstTensorView x, TensorView result) override {
    check_reduction("count_zeros", result);
    sum_measures(stream, x, 0, result);
  }
  void max_abs(Stream& stream, ConstTensorView x, TensorView result) override {
    check_reduction("max_abs", result);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      in_blocks(stream, x, [&](std::int64_t n, std::int64_t blocks, double* partials) {
        double* const nothing = nullptr;
        gpu::launch(stream, {"max_block", blocks, block_threads}, max_block_kernel<T>, n, block_elements, x.as<T>(),
                    partials, nothing);
        gpu::launch(stream, {"max_block", 1, block_threads}, max_block_kernel<double>, blocks, blocks, partials,
                    nothing, result.as<double>());
      });
    });
  }

 private:
  /// Calls launch(elements, blocks, a number of work memory for each block) unless x is empty.
  template <class Launch>
  void in_blocks(Stream& stream, ConstTensorView x, const Launch& launch) {
    const std::int64_t n = x.numel(), blocks = (n + block_elements - 1) / block_elements;
    if (n == 0) return;
    const Buffer scratch = scratch_(stream, static_cast<std::size_t>(blocks) * sizeof(double));
    launch(n, blocks, reinterpret_cast<double*>(scratch.data()));
  }
  void sum_measures(Stream& stream, ConstTensorView x, int power, TensorView result) {
    dispatch_gpu(x.dtype(), [&]<class T>() {
      in_blocks(stream, x, [&](std::int64_t n, std::int64_t blocks, double* partials) {
        gpu::launch(stream, {"sum_measures", blocks, block_threads}, sum_measures_kernel<T>, n, x.as<T>(), power,
                    partials);
        gpu::launch(stream, {"add_blocks", 1, block_threads}, add_blocks_kernel, blocks, partials, result.as<double>());
      });
    });
  }
  void reduce(Stream& stream, ConstTensorView x, bool squares, TensorView result) {
    dispatch_gpu(x.dtype(), [&]<class T>() {
      in_blocks(stream, x, [&](std::int64_t n, std::int64_t blocks, double* partials) {
        gpu::launch(stream, {"sum_block", blocks, block_threads}, sum_block_kernel<T>, n, x.as<T>(), squares, partials);
        gpu::launch(stream, {"add_blocks", 1, block_threads}, add_blocks_kernel, blocks, partials, result.as<double>());
      });
    });
  }

  Scratch scratch_;
};

}  // namespace

std::unique_ptr<ReduceKernels> make_reduce(Scratch scratch) { return std::make_unique<CudaReduce>(std::move(scratch)); }

}  // namespace trireme::cuda
