#pragma once

#include "src/backend/cpu/vector_math.hpp"
#include "src/backend/kernels/gemm.hpp"

namespace trireme::cpu {

// GELU's tanh form is a logistic function in disguise, 0.5 (1 + tanh u) = 1 / (1 + e^-2u), which also keeps the digits
// of small results for negative x. Here 2u = slope (x + cubic x^3).
template <class A>
constexpr A gelu_slope = A(1.5957691216057307118L);  // 2 sqrt(2 / pi)
template <class A>
constexpr A gelu_cubic = A(0.044715L);

/// activation(x).
template <Activation activation, class A>
inline A activate(A x) {
  if constexpr (activation == Activation::gelu_tanh) {
    return x * vector_logistic(gelu_slope<A> * (x + gelu_cubic<A> * x * x * x));
  } else if constexpr (activation == Activation::gelu_erf) {
    return x * vector_normal(x).probability;
  } else {
    return x;
  }
}

/// activation'(x).
template <Activation activation, class A>
inline A activation_derivative(A x) {
  if constexpr (activation == Activation::gelu_tanh) {
    // l + x l' with l the logistic function and l' = l (e^-2u l) (2u)'. Where e^-2u is infinite l is 0.
    const A e = vector_exp(-gelu_slope<A> * (x + gelu_cubic<A> * x * x * x));
    const A l = 1 / (1 + e);
    const A finite = e < A(1e38L) ? e : A(1e38L);
    return l + x * (l * (finite * l)) * (gelu_slope<A> + 3 * gelu_slope<A> * gelu_cubic<A> * x * x);
  } else if constexpr (activation == Activation::gelu_erf) {
    const Normal<A> normal = vector_normal(x);
    return normal.probability + x * normal.density;
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
    case Activation::none:
      break;
  }
  return function.template operator()<Activation::none>();
}

}  // namespace trireme::cpu
