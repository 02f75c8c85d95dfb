#pragma once

#include <cmath>

#include "src/backend/kernels/gemm.hpp"
#include "src/base/vector_math.hpp"

namespace trireme::cpu {

// GELU's tanh form is a logistic function: 0.5 (1 + tanh u) = l = 1 / (1 + e^-2u). This form also keeps the digits of
// small results for negative x. Here 2u = slope (x + cubic x^3); beyond |x| = 10 l is 0 or 1 in any type.
template <class A>
constexpr A gelu_slope = A(1.5957691216057307118L);  // 2 sqrt(2 / pi)
template <class A>
constexpr A gelu_cubic = A(0.044715L);

template <class A>
inline A gelu_bounded(A x) {
  // One comparison: after two GCC divides three times, once for each outcome.
  const A magnitude = std::abs(x);
  return std::copysign(magnitude > A{10} ? A{10} : magnitude, x);
}
/// e^-2u of a bounded x.
template <class A>
inline A gelu_exponential(A x) {
  constexpr A slope = -gelu_slope<A> * std::numbers::log2e_v<A>;
  return vector_exp2_in_range(x * (slope + slope * gelu_cubic<A> * (x * x)));
}

/// activation(x).
template <Activation activation, class A>
inline A activate(A x) {
  if constexpr (activation == Activation::gelu_tanh) {
    return x / (1 + gelu_exponential(gelu_bounded(x)));
  } else if constexpr (activation == Activation::gelu_erf) {
    return x * vector_normal(x).probability;
  } else if constexpr (activation == Activation::tanh) {
    return std::tanh(x);
  } else if constexpr (activation == Activation::squared_relu) {
    const A positive = x > 0 ? x : A{0};
    return positive * positive;
  } else if constexpr (activation == Activation::silu) {
    return x / (1 + vector_exp(-x));
  } else {
    return x;
  }
}

/// activation'(x).
template <Activation activation, class A>
inline A activation_derivative(A x) {
  if constexpr (activation == Activation::gelu_tanh) {
    // l + x l' with l' = l (1 - l) (2u)' and 1 - l = l e^-2u.
    const A bounded = gelu_bounded(x);
    const A e = gelu_exponential(bounded);
    const A l = 1 / (1 + e);
    const A x_slope = bounded * (gelu_slope<A> + 3 * gelu_slope<A> * gelu_cubic<A> * (bounded * bounded));
    return l + l * (l * e) * x_slope;
  } else if constexpr (activation == Activation::gelu_erf) {
    const Normal<A> normal = vector_normal(x);
    return normal.probability + x * normal.density;
  } else if constexpr (activation == Activation::tanh) {
    const A y = std::tanh(x);
    return 1 - y * y;
  } else if constexpr (activation == Activation::squared_relu) {
    return x > 0 ? 2 * x : A{0};
  } else if constexpr (activation == Activation::silu) {
    const A sigmoid = 1 / (1 + vector_exp(-x));
    return sigmoid * (1 + x * (1 - sigmoid));
  } else {
    return A{1};
  }
}

/// Calls `function.template operator()<activation>()`.
template <class Function>
decltype(auto) dispatch_activation(Activation activation, Function&& function) {
  switch (activation) {
    case Activation::gelu_tanh:
      return function.template operator()<Activation::gelu_tanh>();
    case Activation::gelu_erf:
      return function.template operator()<Activation::gelu_erf>();
    case Activation::tanh:
      return function.template operator()<Activation::tanh>();
    case Activation::squared_relu:
      return function.template operator()<Activation::squared_relu>();
    case Activation::silu:
      return function.template operator()<Activation::silu>();
    case Activation::none:
      break;
  }
  return function.template operator()<Activation::none>();
}

}  // namespace trireme::cpu
