#pragma once

#include <span>
#include <vector>

#include "src/parallel/parameter.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::parallel {

/// Adapter of a linear layer's weight W [out, in] (LoRA: Hu et al. 2021, arXiv:2106.09685): the layer computes
/// y = x W^T + s (x A^T) B^T, with A [r, in] and B [out, r]. Where the tensor group splits W, it splits B by outputs
/// and each rank has A, or A by inputs and each rank has B. All products below are then those of this rank's shards:
/// the sums of the layer complete them, and the gradient of the matrix that each rank has is a sum over the group
/// (Parameter::gradient_is_partial). Nothing is kept for backward, which computes x A^T again.
///
/// A layer may have a weight and an adapter for each group of rows, such as an expert (GemmKernels::grouped_linear).
/// `rows` are then the rows of each group; empty: there is one.
class LowRankTerm {
 public:
  using GroupRows = std::span<const std::int64_t>;

  /// Without an adapter.
  explicit LowRankTerm(const TensorContext& context) : context_(context) {}
  /// Adds the adapter of the next group. Defers both gradients (GradientSums). `scale` is s, the same for all groups.
  /// B's leading dimensions are taken together as outputs.
  void adapt(const Parameter& a, const Parameter& b, double scale);
  /// The same for `outputs` outputs from `first` on, of a weight whose parts are layers of their own: they share A.
  /// Does not defer B's gradient, which has no single first product.
  void adapt_outputs(const Parameter& a, const Parameter& b, double scale, std::int64_t first, std::int64_t outputs);
  bool any() const { return !a_.values.empty(); }

  /// y += s (x A^T) B^T. x [n, in]; y [n, out].
  void forward(ConstTensorView x, TensorView y, GroupRows rows = {}) const;
  /// dx += s (dy B) A. dy [n, out]; dx [n, in].
  void backward_input(ConstTensorView dy, TensorView dx, GroupRows rows = {}) const;
  /// Accumulates the gradients of A, s (dy B)^T x, and of B, s dy^T (x A^T).
  void backward_weight(ConstTensorView dy, ConstTensorView x, GroupRows rows = {}) const;

 private:
  /// A or B of all groups.
  struct Matrices {
    std::vector<TensorView> values, gradients;
    std::vector<GradientSum> sums;
  };
  static void add(Matrices& matrices, const Parameter& parameter, std::int64_t first, std::int64_t rows);
  /// s x A^T and s dy B, [n, r] in the work space.
  TensorView narrow(ConstTensorView x, GroupRows rows) const;
  TensorView narrow_gradient(ConstTensorView dy, GroupRows rows) const;

  TensorContext context_;
  Matrices a_, b_;
  double scale_ = 1;
};

}  // namespace trireme::parallel
