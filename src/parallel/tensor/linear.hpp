#pragma once

#include "src/parallel/parameter.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::parallel {

// Linear layers split over the tensor group (Shoeybi et al. 2019, arXiv:1909.08053, section 3). n = s b rows. A column-
// parallel layer followed by a row-parallel one needs one all-reduce forward, after the second, and one backward,
// before the first; what lies between stays on its rank.

/// y = activation(x W^T + b), W split by rows (outputs): x [n, in] is the same on all ranks, y [n, out / t] is this
/// rank's part.
class ColumnParallelLinear {
 public:
  /// `bias` may be null. The weight's leading dimensions are taken together as outputs.
  ColumnParallelLinear(const TensorContext& context, const Parameter& weight, const Parameter* bias);

  std::int64_t outputs() const { return weight_.shape()[0]; }
  /// Overwrites y and, where there is an activation, pre_activation, both [n, out / t].
  void forward(ConstTensorView x, Activation activation, TensorView pre_activation, TensorView y) const;
  /// dx = sum over the tensor group of dy W, [n, in], overwritten: complete on every rank.
  void backward_input(ConstTensorView dy, TensorView dx) const;
  /// Accumulates the gradients of weight and bias.
  void backward_weight(ConstTensorView dy, ConstTensorView x) const;

 private:
  TensorContext context_;
  TensorView weight_;  // [out / t, in]
  TensorView bias_;
  TensorView weight_gradient_;
  TensorView bias_gradient_;
};

/// y = x W^T, W split by columns (inputs): x [n, in / t] is this rank's part, y [n, out] is summed over the tensor
/// group and complete on every rank. The bias is left to the operation that follows (bias + dropout + residual), which
/// adds it once, after the sum.
class RowParallelLinear {
 public:
  RowParallelLinear(const TensorContext& context, const Parameter& weight);

  /// Overwrites y.
  void forward(ConstTensorView x, TensorView y) const;
  /// dx = dy W times activation'(pre_activation), [n, in / t], overwritten; no communication.
  void backward_input(ConstTensorView dy, Activation activation, ConstTensorView pre_activation, TensorView dx) const;
  /// Accumulates the weight's gradient.
  void backward_weight(ConstTensorView dy, ConstTensorView x) const;

 private:
  TensorContext context_;
  TensorView weight_;  // [out, in / t]
  TensorView weight_gradient_;
};

}  // namespace trireme::parallel
