#pragma once

#include "src/parallel/parameter.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::parallel {

/// Adapter of a linear layer's weight W [out, in] (LoRA: Hu et al. 2021, arXiv:2106.09685): the layer computes
/// y = x W^T + s (x A^T) B^T, with A [r, in] and B [out, r]. Where the tensor group splits W, it splits B by outputs
/// and each rank has A, or A by inputs and each rank has B. All products below are then those of this rank's shards:
/// the sums of the layer complete them, and the gradient of the matrix that each rank has is a sum over the group
/// (Parameter::gradient_is_partial). Nothing is kept for backward, which computes x A^T again.
class LowRankTerm {
 public:
  /// Defers both gradients (GradientSums). `scale` is s. B's leading dimensions are taken together as outputs.
  LowRankTerm(const TensorContext& context, const Parameter& a, const Parameter& b, double scale);

  /// y += s (x A^T) B^T. x [n, in]; y [n, out].
  void forward(ConstTensorView x, TensorView y) const;
  /// dx += s (dy B) A. dy [n, out]; dx [n, in].
  void backward_input(ConstTensorView dy, TensorView dx) const;
  /// Accumulates the gradients of A, s (dy B)^T x, and of B, s dy^T (x A^T).
  void backward_weight(ConstTensorView dy, ConstTensorView x) const;

 private:
  struct Matrix {
    TensorView value, gradient;
    GradientSum sum;
  };
  static Matrix matrix_of(const Parameter& parameter);
  /// s x A^T and s dy B, [n, r] in the work space.
  TensorView narrow(ConstTensorView x) const;
  TensorView narrow_gradient(ConstTensorView dy) const;

  TensorContext context_;
  Matrix a_, b_;
  double scale_;
};

}  // namespace trireme::parallel
