#pragma once

#include "src/backend/backend.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::model {

/// Sum of losses in device memory.
class LossSum {
 public:
  /// `backend` must live longer.
  explicit LossSum(Backend& backend) : backend_(backend), sum_(backend, DType::fp64, {1}) { clear(); }

  /// Adds the elements of `losses` to the sum. Stream-ordered.
  void add(ConstTensorView losses) { backend_.reduce().sum(backend_.compute_stream(), losses, sum_); }

  /// sum [1] fp64 = the sum since the last call. Stream-ordered.
  void take(TensorView sum) {
    backend_.copy_within(backend_.compute_stream(), sum_.view(), sum);
    clear();
  }

 private:
  void clear() { backend_.elementwise().fill(backend_.compute_stream(), 0, sum_); }

  Backend& backend_;
  Tensor sum_;  // [1]
};

/// Returns the gradients of the losses with `weights` [n] A: `given`, or if that is empty `factor` times the weights,
/// in the work space.
inline ConstTensorView loss_gradient(Backend& backend, ConstTensorView weights, ConstTensorView given, double factor,
                                     Arena& workspace) {
  if (given) return given;
  const TensorView gradient = workspace.allocate(weights.dtype(), weights.shape());
  backend.elementwise().convert(backend.compute_stream(), weights, gradient);
  backend.elementwise().scale(backend.compute_stream(), factor, gradient);
  return gradient;
}

}  // namespace trireme::model
