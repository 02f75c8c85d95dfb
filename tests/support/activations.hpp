#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/backend/kernels/gemm.hpp"

namespace trireme::test {

constexpr Activation all_activations[] = {Activation::none, Activation::gelu_tanh,    Activation::gelu_erf,
                                          Activation::tanh, Activation::squared_relu, Activation::silu};

/// The activations and their derivatives by definition.
inline double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::squared_relu:
      return std::pow(std::max(x, 0.0), 2);
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::none:
      break;
  }
  return x;
}
inline double activation_slope(Activation activation, double x) {
  constexpr double pi = std::numbers::pi;
  switch (activation) {
    case Activation::gelu_tanh: {
      const double t = std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::gelu_erf:
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
    case Activation::tanh:
      return 1 - std::tanh(x) * std::tanh(x);
    case Activation::squared_relu:
      return 2 * std::max(x, 0.0);
    case Activation::silu: {
      const double sigmoid = 1 / (1 + std::exp(-x));
      return sigmoid + x * sigmoid * (1 - sigmoid);
    }
    case Activation::none:
      break;
  }
  return 1;
}

}  // namespace trireme::test
