#pragma once

#include "src/backend/kernels/dropout.hpp"
#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// What layer normalisation keeps for its backward, one pair a row: mean and 1 / sqrt(variance + epsilon), both [n] A.
struct NormStatistics {
  TensorView mean;
  TensorView reciprocal_deviation;
};

/// Layer normalisation over the last dimension. n = s b rows of h; T the training type, A its accumulation type, in
/// which rows are computed. Variance is the biased one. Stream-ordered, deterministic.
class NormKernels {
 public:
  virtual ~NormKernels() = default;

  /// y = (x - mean) rstd weight + bias. x, y [n, h] T; weight, bias [h] T. Overwrites y and statistics.
  virtual void layer_norm(Stream& stream, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                          double epsilon, TensorView y, NormStatistics statistics) = 0;

  /// dx = residual_gradient + d layer_norm / dx applied to dy (the second branch of a pre-norm residual block arrives
  /// in residual_gradient, [n, h] T or empty); dweight, dbias [h] A accumulate. dx [n, h] T is overwritten and may be
  /// the same memory as residual_gradient or dy.
  virtual void layer_norm_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                                   NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                                   TensorView dweight, TensorView dbias) = 0;

  /// sum = residual + dropout(x + bias);  y = layer_norm(sum). The layer normalisation reads `sum` as rounded to T.
  /// x, residual, sum, y [s, b, h] T; bias, weight, norm_bias [h] T. Overwrites sum, y, statistics. `sum` may be the
  /// same memory as x or residual.
  virtual void bias_dropout_add_norm(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                     const Dropout& dropout, ConstTensorView weight, ConstTensorView norm_bias,
                                     double epsilon, TensorView sum, TensorView y, NormStatistics statistics) = 0;
};

}  // namespace trireme
