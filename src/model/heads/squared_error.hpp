#pragma once

#include "src/backend/backend.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::model {

/// Squared errors of predicted values x [n, 1] T, (x - t)^2 with t [n] the targets. Stream-ordered.
class SquaredError {
 public:
  /// `backend` must live longer.
  explicit SquaredError(Backend& backend) : backend_(backend) {}

  /// Returns x - t, [n] A, in `arena`. The int32 `targets` [n] are the bits of fp32 numbers.
  TensorView differences(ConstTensorView x, ConstTensorView targets, Arena& arena) const;
  /// Returns the weighted losses w (x - t)^2, [n] A, in `arena`. weights [n] A.
  ConstTensorView losses(ConstTensorView differences, ConstTensorView weights, Arena& arena) const;
  /// Computes dx = 2 g (x - t), overwritten, from the gradient g [n] A of each unweighted loss. Overwrites
  /// `differences`.
  void backward(TensorView differences, ConstTensorView gradient, TensorView dx) const;

 private:
  Backend& backend_;
};

}  // namespace trireme::model
