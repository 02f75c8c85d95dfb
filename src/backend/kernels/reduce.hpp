#pragma once

#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Sums over a whole tensor, into one fp64 in device memory. The order of additions depends on the size alone, never on
/// the number of threads. Stream-ordered.
class ReduceKernels {
 public:
  virtual ~ReduceKernels() = default;

  /// result += sum of x^2, computed in fp64. x: any floating-point type; result: [1] fp64. Accumulates. An infinite or
  /// NaN element makes the result infinite or NaN.
  virtual void sum_squares(Stream& stream, ConstTensorView x, TensorView result) = 0;
  /// result += sum of x, computed in fp64. x: any floating-point type; result: [1] fp64. Accumulates.
  virtual void sum(Stream& stream, ConstTensorView x, TensorView result) = 0;
};

}  // namespace trireme
