#pragma once

#include <functional>
#include <optional>

#include "src/parallel/parameter.hpp"
#include "src/parallel/tensor/low_rank_term.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::parallel {

// Linear layers split over the tensor group (Shoeybi et al. 2019, arXiv:1909.08053, section 3). n = s b rows. A
// column-parallel layer followed by a row-parallel one needs one all-reduce in forward, after the second, and one in
// backward, before the first. The activations between them stay on their rank. With sequence parallelism
// (TensorContext) the tensors outside are this rank's n / t rows. Then the first layer gathers its input, again in
// backward since only the rows are kept, and each sum is scattered. Below, N is n, or n / t with sequence parallelism.

// A frozen weight has no gradient: functions that accumulate it skip it, and run for its adapter alone, if any.

/// Time of the weight's gradient: in backward_input, behind its communication, or in backward_weight.
enum class WeightGradient { now, later };

/// y = activation(x W^T + b), W split by rows (outputs): x [N, in] is the same on all ranks (without sequence
/// parallelism), y [n, out / t] is this rank's shard. Several weights of one input, such as those of queries and of
/// keys and values, share its communication. y then holds their results one after another in memory, each [n, out_i /
/// t].
class ColumnParallelLinear {
 public:
  /// `bias` may be null. The weight's leading dimensions are taken together as outputs. Defers its gradient
  /// (GradientSums).
  ColumnParallelLinear(const TensorContext& context, const Parameter& weight, const Parameter* bias);
  /// Adds a weight of the same input.
  void add(const Parameter& weight, const Parameter* bias);
  /// Adds an adapter (LowRankTerm) of the weight that was added last.
  void adapt(const Parameter& a, const Parameter& b, double scale) {
    projections_.back().adapter.emplace(context_).adapt(a, b, scale);
  }

  /// Overwrites y and, with an activation, pre_activation, both [n, out / t].
  void forward(ConstTensorView x, Activation activation, TensorView pre_activation, TensorView y) const;
  /// dx = sum over the tensor group of dy W, [N, in], overwritten, chunk by chunk (TensorContext::row_chunks). x is
  /// forward's input, unread with WeightGradient::later.
  void backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx, WeightGradient weights) const;
  /// The same with `term`, a result of TensorContext::term_of(dx), for this rank's term. Returns the sums in flight,
  /// one for each chunk of dx. They run behind the products of the weights' gradients and what follows; a chunk of
  /// `term` is free after its sum. `input` is a gathering of x that has started; null: it starts here. A `source` of dy
  /// needs `computes_sources` and WeightGradient::now.
  ChunkWorks backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx, WeightGradient weights,
                            TensorView term, TensorContext::Gathering* input = nullptr,
                            const Fp8Source& source = {}) const;
  /// Returns whether backward_input computes a source where it rounds dy.
  bool computes_sources() const;
  /// Accumulates the gradients of weights and biases.
  void backward_weight(ConstTensorView dy, ConstTensorView x) const;

  /// `forward` of a chunk from its rows `x` of the gathered input. No communication. The other tensors have all rows.
  void multiply(RowChunk chunk, ConstTensorView x, Activation activation, TensorView pre_activation,
                TensorView y) const;

  /// Returns dy [rows, out / t] of the rows of the gathered input from `begin` on, `x` [rows, in].
  using ChunkGradient = std::function<ConstTensorView(std::int64_t begin, ConstTensorView x)>;
  /// `backward_input` and `backward_weight` for a dy too wide to exist all at once: in chunks of `chunk_rows` rows, the
  /// last of the remaining ones. Each chunk exists until `gradient_of` is called for the next. The weight's gradient is
  /// added up chunk by chunk. The layer has one weight.
  void backward_in_chunks(std::int64_t chunk_rows, ConstTensorView x, TensorView dx,
                          const ChunkGradient& gradient_of) const;

 private:
  struct Projection {
    TensorView weight;  // [out / t, in]
    TensorView bias;
    TensorView weight_gradient;
    GradientSum sum;
    TensorView bias_gradient;
    Fp8Weight fp8;
    std::optional<LowRankTerm> adapter;
    std::int64_t first_output = 0;  // among those of all projections
  };
  /// Matrix of a projection within y or a tensor of the same layout.
  template <class View>
  View outputs_of(const Projection& projection, View y) const;
  /// Copies of dy in FP8 for both of its products, one for each projection; empty: they share none.
  using GradientCopies = std::vector<Fp8Copy>;
  /// A chunk of the part of dy for projection i.
  Fp8Weight::Operand gradient_operand(std::size_t i, RowChunk chunk, ConstTensorView dy, GradientCopies& copies,
                                      const Fp8Source& source) const;
  /// term = dy W of a chunk, this rank's term of dx; dy has all rows.
  void multiply_gradient(RowChunk chunk, ConstTensorView dy, TensorView term, GradientCopies& copies,
                         const Fp8Source& source) const;
  /// Returns whether a gradient is accumulated.
  bool trains() const;
  /// Runs backward_weight on the gathered x.
  void accumulate(ConstTensorView dy, ConstTensorView x, GradientCopies copies = {},
                  const Fp8Source& source = {}) const;

  TensorContext context_;
  std::vector<Projection> projections_;
  std::int64_t outputs_ = 0;
};

/// y = x W^T, W split by columns (inputs): x [n, in / t] is this rank's shard, y [N, out] is summed over the tensor
/// group. The operation that follows (bias + dropout + residual) adds the bias once, after the sum.
class RowParallelLinear {
 public:
  /// Defers the weight's gradient (GradientSums).
  RowParallelLinear(const TensorContext& context, const Parameter& weight);
  /// Adds an adapter (LowRankTerm) of the weight.
  void adapt(const Parameter& a, const Parameter& b, double scale) { adapter_.emplace(context_).adapt(a, b, scale); }
  /// Returns whether backward_weight accumulates a gradient.
  bool trains() const { return weight_gradient_ || adapter_; }
  /// Overwrites y.
  void forward(ConstTensorView x, TensorView y) const;
  /// term = x W^T, this rank's term of the sum y, for some rows. No communication. `copy` of the same x, with its
  /// `source`, is shared with backward_weight, or null.
  void multiply(ConstTensorView x, TensorView term, Fp8Copy* copy = nullptr, const Fp8Source& source = {}) const;
  /// dx = dy W times activation'(pre_activation), [rows, in / t], overwritten, for some rows of the gathered dy.
  /// `copy` of the same rows is shared with backward_weight, or null.
  void backward_input(ConstTensorView dy, Activation activation, ConstTensorView pre_activation, TensorView dx,
                      Fp8Copy* copy = nullptr) const;
  /// Accumulates the weight's gradient from the gathered dy.
  void backward_weight(ConstTensorView dy, ConstTensorView x, Fp8Copy* copy = nullptr, Fp8Copy* input_copy = nullptr,
                       const Fp8Source& source = {}) const;
  /// Allocates a copy of dy in the work space, if all of its rows are in one chunk; else without memory.
  Fp8Copy gradient_copy(ConstTensorView dy) const;
  /// Bytes of a copy of x [rows, columns] that forward may keep for backward_weight; 0: it keeps none.
  std::int64_t input_copy_bytes(std::int64_t rows, std::int64_t columns) const;
  /// Returns whether products compute a source where they round x.
  bool computes_sources() const { return fp8_.computes_sources() && !adapter_; }

 private:
  TensorContext context_;
  TensorView weight_;  // [out, in / t]
  TensorView weight_gradient_;
  GradientSum sum_;
  Fp8Weight fp8_;
  std::optional<LowRankTerm> adapter_;
};

}  // namespace trireme::parallel
