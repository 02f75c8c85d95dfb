#pragma once

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// Sums and maxima over a full tensor, into one fp64 in device memory. The order of additions depends on the size
/// alone, never on the number of threads. Stream-ordered.
class ReduceKernels : public KernelFamily<ReduceKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// result += sum of x^2, computed in fp64. x: any floating-point type; result: [1] fp64. Accumulates. An infinite or
  /// NaN element makes the result infinite or NaN.
  virtual void sum_squares(Stream& stream, ConstTensorView x, TensorView result) {
    pass_on(&ReduceKernels::sum_squares, stream, reduction_of(x), x, result);
  }
  /// result += sum of x, computed in fp64. x: any floating-point type; result: [1] fp64. Accumulates.
  virtual void sum(Stream& stream, ConstTensorView x, TensorView result) {
    pass_on(&ReduceKernels::sum, stream, reduction_of(x, KernelKind::cross_entropy), x, result);
  }
  /// result += sum of |x|^power, computed in fp64; power at least 1. Otherwise as sum_squares.
  virtual void sum_powers(Stream& stream, ConstTensorView x, int power, TensorView result) {
    pass_on(&ReduceKernels::sum_powers, stream, reduction_of(x), x, power, result);
  }
  /// result = max(result, |x|) over all elements, in which a NaN is infinite. x: any floating-point type; result: [1]
  /// fp64.
  virtual void max_abs(Stream& stream, ConstTensorView x, TensorView result) {
    pass_on(&ReduceKernels::max_abs, stream, reduction_of(x), x, result);
  }
  /// result += number of elements that are 0 or -0. x: any floating-point type; result: [1] fp64. Accumulates.
  virtual void count_zeros(Stream& stream, ConstTensorView x, TensorView result) {
    pass_on(&ReduceKernels::count_zeros, stream, reduction_of(x), x, result);
  }

 private:
  static KernelCall reduction_of(ConstTensorView x, KernelKind kind = KernelKind::gradients) {
    return {kind, bytes_of({x}), x.numel() == 0 ? 0 : 2};
  }
};

}  // namespace trireme
