#pragma once

#include <string>

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/norm.hpp"
#include "src/model/blocks/layer_shape.hpp"
#include "src/model/parameter_list.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Value of an optional parameter; empty if the model lacks it.
inline TensorView value_of(const parallel::Parameter* parameter) { return parameter ? parameter->value : TensorView(); }
inline TensorView gradient_of(const parallel::Parameter* parameter) {
  return parameter ? parameter->gradient : TensorView();
}

/// Bias that is added by an operation after the layer's GEMM, and its gradient; empty in models without it.
struct OutputBias {
  OutputBias(const parallel::ParameterBuffer& parameters, const std::string& name)
      : value(value_of(parameters.find(name))), gradient(gradient_of(parameters.find(name))) {}
  TensorView value, gradient;
};

/// Normalisation of the rows of a tensor: the model's LayerNorm or RMSNorm (NormKernels).
class Norm {
 public:
  /// Adds `prefix`.weight [width], and for LayerNorm `prefix`.bias, for rows of the residual stream.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t width) {
    declare(list, config, prefix, width, list.shard().sequence_parallel);
  }
  /// The same for any rows. With `is_partial` the gradient is a sum over the tensor ranks.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t width,
                      bool is_partial);

  Norm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix,
       const ModelConfig& config);

  /// Allocates statistics for `rows` rows, for training in `dtype`.
  NormStatistics make_statistics(std::int64_t rows, DType dtype, Arena& arena) const;
  /// y = norm(x); overwrites y and `statistics`.
  void forward(ConstTensorView x, TensorView y, const NormStatistics& statistics) const;
  /// sum = residual + dropout(x + bias), y = norm(sum); overwrites sum, y and `statistics`.
  void forward_sum(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const Dropout& dropout,
                   TensorView sum, TensorView y, const NormStatistics& statistics) const;
  /// dx = gradient of x from dy, plus dresidual if given. Overwrites dx, which may be dy or dresidual. Accumulates the
  /// gradients of weight and bias, unless they are frozen.
  void backward(ConstTensorView dy, ConstTensorView x, const NormStatistics& statistics, ConstTensorView dresidual,
                TensorView dx) const;

 private:
  parallel::TensorContext context_;
  bool has_mean_;
  double epsilon_;
  NormWeight weight_;
  TensorView bias_;
  TensorView weight_gradient_;
  TensorView bias_gradient_;
};

/// Normalisation of queries or keys before rotation (QK norm: Dehghani et al. 2023, arXiv:2302.05442). Two forms:
/// * the channels of each head. All heads share one weight [d]; each rank accumulates its gradient over its own heads;
/// * all heads of a position together, with a weight [heads d] (ModelConfig::qk_norm_across_heads). The ranks of the
///   tensor group gather their heads, and each computes all.
class HeadNorm {
 public:
  /// Inputs of backward.
  struct Saved {
    TensorView heads;  ///< [s, b, heads, d] before the norm
    NormStatistics statistics;
  };

  /// Adds the norm `prefix`.* of `heads` heads of the full model.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t heads);
  HeadNorm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
           const std::string& prefix, const ModelConfig& config)
      : context_(context), norm_(context, parameters, prefix, config), across_heads_(config.qk_norm_across_heads) {}

  Saved make_saved(const LayerShape& shape, std::int64_t heads, Arena& arena) const;
  /// x = norm(x), in place; overwrites `saved`.
  void forward(const HeadsShape& shape, const Heads& x, const Saved& saved) const;
  /// Replaces dx, the gradient of the result, by that of the input. Accumulates the gradients of weight and bias.
  void backward(const HeadsShape& shape, const Heads& dx, const Saved& saved) const;

 private:
  /// Calls `compute` with the heads x as a matrix [positions batch heads, d]: in place if they are contiguous,
  /// otherwise in a copy that is written back. `reads` says whether `compute` reads the matrix.
  template <class Compute>
  void as_matrix(const HeadsShape& shape, const Heads& x, bool reads, const Compute& compute) const;

  bool is_gathered() const { return across_heads_ && context_.tensor_group.size() > 1; }
  /// Rows [positions batch, ranks head_dim] in the work space, of the tensor ranks' `own` [positions batch, head_dim].
  TensorView gather(const HeadsShape& shape, ConstTensorView own) const;
  /// Copies this rank's columns of such `rows` to x.
  void take_own(const HeadsShape& shape, TensorView rows, const Heads& x) const;

  parallel::TensorContext context_;
  Norm norm_;
  bool across_heads_;
};

}  // namespace trireme::model
