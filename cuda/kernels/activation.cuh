#pragma once

#include "cuda/kernels/vec8.cuh"
#include "src/backend/kernels/gemm.hpp"

namespace trireme::cuda {

/// GELU's tanh form is x / (1 + e^-2u), which keeps the digits of small results, as erfc does for the other form.
template <class A>
__device__ A activated(Activation activation, A x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-static_cast<A>(1.5957691216057307118) * (x + static_cast<A>(0.044715) * x * x * x)));
    case Activation::gelu_erf:
      return static_cast<A>(0.5) * x * std::erfc(-static_cast<A>(0.70710678118654752440) * x);
    case Activation::tanh:
      return std::tanh(x);
    case Activation::squared_relu:
      return x > 0 ? x * x : A{0};
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::none:
      break;
  }
  return x;
}

/// d activated / dx.
template <class A>
__device__ A activation_slope(Activation activation, A x) {
  switch (activation) {
    case Activation::gelu_tanh: {
      // Beyond |x| = 10 the sigmoid is 0 or 1. Its complement is sigmoid e^-2u, without a difference.
      const A bounded = x < -10 ? A{-10} : x > 10 ? A{10} : x;
      const A two_u =
          static_cast<A>(1.5957691216057307118) * (bounded + static_cast<A>(0.044715) * bounded * bounded * bounded);
      const A e = std::exp(-two_u), sigmoid = 1 / (1 + e);
      const A slope = static_cast<A>(1.5957691216057307118) * (1 + static_cast<A>(3 * 0.044715) * bounded * bounded);
      return sigmoid + bounded * sigmoid * (sigmoid * e) * slope;
    }
    case Activation::gelu_erf:
      return static_cast<A>(0.5) * std::erfc(-static_cast<A>(0.70710678118654752440) * x) +
             x * static_cast<A>(0.39894228040143267794) * std::exp(-static_cast<A>(0.5) * x * x);
    case Activation::tanh: {
      const A y = std::tanh(x);
      return 1 - y * y;
    }
    case Activation::squared_relu:
      return x > 0 ? 2 * x : A{0};
    case Activation::silu: {
      const A sigmoid = 1 / (1 + std::exp(-x));
      return sigmoid * (1 + x * (1 - sigmoid));
    }
    case Activation::none:
      break;
  }
  return 1;
}

/// dx = dy activation'(x); dx may be dy.
template <class T>
__global__ void __launch_bounds__(block_threads)
    activate_backward_kernel(std::int64_t n, Activation activation, const T* dy, const T* x, T* dx) {
  const Vec8 range = vec8_at(global_thread(), n);
  const PackedVec8 own(dy + range.begin, range.size), other(x + range.begin, range.size);
  Accumulation<T> gradient[8], value[8];
  own.unpack(gradient);
  other.unpack(value);
  for (int c = 0; c < 8; ++c) gradient[c] *= activation_slope(activation, value[c]);
  store(gradient, range.size, dx + range.begin);
}

}  // namespace trireme::cuda
