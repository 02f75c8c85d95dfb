#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>

#include "cuda/kernels/epilogue.hpp"

namespace trireme::cuda {
namespace {

constexpr int threads = 256;

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ void store(float* to, float x) { *to = x; }
__device__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ void store(__half* to, float x) { *to = __float2half_rn(x); }

constexpr float sqrt_2_over_pi = 0.7978845608028654F, cubic = 0.044715F;

__device__ float activate(KernelActivation activation, float x) {
  switch (activation) {
    case KernelActivation::gelu_tanh:
      return 0.5F * x * (1 + tanhf(sqrt_2_over_pi * (x + cubic * x * x * x)));
    case KernelActivation::gelu_erf:
      return 0.5F * x * (1 + erff(x * 0.7071067811865476F));
    case KernelActivation::none:
      break;
  }
  return x;
}

__device__ float derivative(KernelActivation activation, float x) {
  switch (activation) {
    case KernelActivation::gelu_tanh: {
      const float t = tanhf(sqrt_2_over_pi * (x + cubic * x * x * x));
      return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * cubic * x * x);
    }
    case KernelActivation::gelu_erf:
      return 0.5F * (1 + erff(x * 0.7071067811865476F)) + x * 0.3989422804014327F * expf(-0.5F * x * x);
    case KernelActivation::none:
      break;
  }
  return 1;
}

template <class T>
__global__ void __launch_bounds__(threads)
    bias_activation_kernel(std::int64_t numel, std::int64_t columns, const T* bias, KernelActivation activation, T* z,
                           bool keep, T* y) {
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < numel; i += stride) {
    float x = to_float(z[i]);
    if (bias != nullptr) x += to_float(bias[i % columns]);
    if (keep) store(z + i, x);
    store(y + i, activate(activation, x));
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    activation_backward_kernel(std::int64_t numel, KernelActivation activation, const T* z, T* dx) {
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < numel; i += stride) {
    store(dx + i, to_float(dx[i]) * derivative(activation, to_float(z[i])));
  }
}

/// Block (x, y) adds up the rows of group y in 256 columns; neighbouring threads read neighbouring columns.
template <class T>
__global__ void __launch_bounds__(threads)
    column_sums_kernel(std::int64_t rows, std::int64_t columns, const T* x, float* partial) {
  const std::int64_t column = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (column >= columns) return;
  const std::int64_t begin = std::int64_t{blockIdx.y} * column_sum_rows;
  const std::int64_t end = begin + column_sum_rows < rows ? begin + column_sum_rows : rows;
  float sum = 0;
  for (std::int64_t row = begin; row < end; ++row) sum += to_float(x[row * columns + column]);
  partial[std::int64_t{blockIdx.y} * columns + column] = sum;
}

__global__ void __launch_bounds__(threads)
    add_partial_sums_kernel(std::int64_t groups, std::int64_t columns, const float* partial, float* sums) {
  const std::int64_t column = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (std::int64_t group = 0; group < groups; ++group) sum += partial[group * columns + column];
  sums[column] += sum;
}

__global__ void __launch_bounds__(threads) add_vector_kernel(std::int64_t n, const float* x, float* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n) y[i] += x[i];
}

unsigned blocks_for(std::int64_t numel) {
  constexpr std::int64_t most = 65535;
  const std::int64_t blocks = (numel + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// Calls function(T{}) with the CUDA type of `dtype`.
template <class Function>
void dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::fp32:
      return function(float{});
    case DType::bf16:
      return function(__nv_bfloat16{});
    case DType::fp16:
      return function(__half{});
    default:
      // Without formatting: nvcc does not take fmt's format strings.
      throw ConfigError(std::string("the GPU computes in fp32, bf16 or fp16, not ") + std::string(name_of(dtype)));
  }
}

}  // namespace

void bias_activation(CudaStream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* bias,
                     KernelActivation activation, void* z, bool keep, void* y) {
  const std::int64_t numel = rows * columns;
  if (numel == 0) return;
  dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    bias_activation_kernel<<<blocks_for(numel), threads, 0, stream.handle()>>>(
        numel, columns, static_cast<const T*>(bias), activation, static_cast<T*>(z), keep, static_cast<T*>(y));
  });
  stream.device().launched(stream.handle(), "bias_activation");
}

void activation_backward(CudaStream& stream, DType dtype, std::int64_t numel, KernelActivation activation,
                         const void* z, void* dx) {
  if (numel == 0) return;
  dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    activation_backward_kernel<<<blocks_for(numel), threads, 0, stream.handle()>>>(
        numel, activation, static_cast<const T*>(z), static_cast<T*>(dx));
  });
  stream.device().launched(stream.handle(), "activation_backward");
}

void column_sums(CudaStream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x,
                 float* partial, float* sums) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t groups = (rows + column_sum_rows - 1) / column_sum_rows;
  const auto across = static_cast<unsigned>((columns + threads - 1) / threads);
  dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    column_sums_kernel<<<dim3(across, static_cast<unsigned>(groups)), threads, 0, stream.handle()>>>(
        rows, columns, static_cast<const T*>(x), partial);
  });
  stream.device().launched(stream.handle(), "column_sums");
  add_partial_sums_kernel<<<across, threads, 0, stream.handle()>>>(groups, columns, partial, sums);
  stream.device().launched(stream.handle(), "add_partial_sums");
}

void add_vector(CudaStream& stream, std::int64_t n, const float* x, float* y) {
  if (n == 0) return;
  add_vector_kernel<<<static_cast<unsigned>((n + threads - 1) / threads), threads, 0, stream.handle()>>>(n, x, y);
  stream.device().launched(stream.handle(), "add_vector");
}

}  // namespace trireme::cuda
