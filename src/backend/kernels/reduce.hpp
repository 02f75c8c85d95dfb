#pragma once

#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Sums and maxima over a whole tensor, into one fp64 in device memory. The order of additions depends on the size
/// alone, never on the number of threads. Stream-ordered.
class ReduceKernels {
 public:
  virtual ~ReduceKernels() = default;

  /// result += sum of x^2, computed in fp64. x: any floating-point type; result: [1] fp64. Accumulates. An infinite or
  /// NaN element makes the result infinite or NaN.
  virtual void sum_squares(Stream& stream, ConstTensorView x, TensorView result) = 0;
  /// result += sum of x, computed in fp64. x: any floating-point type; result: [1] fp64. Accumulates.
  virtual void sum(Stream& stream, ConstTensorView x, TensorView result) = 0;
  /// result += sum of |x|^power, computed in fp64; power at least 1. Otherwise as sum_squares.
  virtual void sum_powers(Stream& stream, ConstTensorView x, int power, TensorView result) = 0;
  /// result = max(result, |x|) over all elements, in which a NaN is infinite. x: any floating-point type; result: [1]
  /// fp64.
  virtual void max_abs(Stream& stream, ConstTensorView x, TensorView result) = 0;
  /// result += number of elements that are 0 or -0. x: any floating-point type; result: [1] fp64. Accumulates.
  virtual void count_zeros(Stream& stream, ConstTensorView x, TensorView result) = 0;
};

}  // namespace trireme
