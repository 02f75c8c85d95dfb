// The kernels of cuda/kernels/epilogue.hpp on the host, for tests without a GPU.
#include <cmath>
#include <vector>

#include "cuda/kernels/epilogue.hpp"
#include "tests/cuda/fake_cuda.hpp"

namespace trireme::cuda {
namespace {

double activate(KernelActivation kind, double x) {
  if (kind == KernelActivation::none) return x;
  if (kind == KernelActivation::gelu_erf) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double derivative(KernelActivation kind, double x) {
  constexpr double step = 1e-5;
  return (activate(kind, x + step) - activate(kind, x - step)) / (2 * step);
}

}  // namespace

void bias_activation(CudaStream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* bias,
                     KernelActivation activation, void* z, bool keep, void* y) {
  fake_cuda::enqueue(stream.handle(), "bias_activation", [=] {
    dispatch_float(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        auto x = static_cast<float>(static_cast<const T*>(z)[i]);
        if (bias != nullptr) x += static_cast<float>(static_cast<const T*>(bias)[i % columns]);
        if (keep) static_cast<T*>(z)[i] = T(x);
        static_cast<T*>(y)[i] = T(static_cast<float>(activate(activation, x)));
      }
    });
  });
}

void activation_backward(CudaStream& stream, DType dtype, std::int64_t numel, KernelActivation activation,
                         const void* z, void* dx) {
  fake_cuda::enqueue(stream.handle(), "activation_backward", [=] {
    dispatch_float(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < numel; ++i) {
        const double factor = derivative(activation, static_cast<float>(static_cast<const T*>(z)[i]));
        static_cast<T*>(dx)[i] = T(static_cast<float>(factor * static_cast<float>(static_cast<T*>(dx)[i])));
      }
    });
  });
}

void column_sums(CudaStream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x,
                 float* partial, float* sums) {
  fake_cuda::enqueue(stream.handle(), "column_sums", [=] {
    dispatch_float(dtype, [&]<class T>() {
      for (std::int64_t group = 0; group * column_sum_rows < rows; ++group) {
        for (std::int64_t j = 0; j < columns; ++j) {
          float sum = 0;
          for (std::int64_t i = group * column_sum_rows; i < std::min(rows, (group + 1) * column_sum_rows); ++i) {
            sum += static_cast<float>(static_cast<const T*>(x)[i * columns + j]);
          }
          partial[group * columns + j] = sum;
          sums[j] += sum;
        }
      }
    });
  });
}

void add_vector(CudaStream& stream, std::int64_t n, const float* x, float* y) {
  fake_cuda::enqueue(stream.handle(), "add_vector", [=] {
    for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
  });
}

}  // namespace trireme::cuda
