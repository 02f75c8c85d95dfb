#pragma once

#include <optional>

#include "src/model/blocks/transformer_layer.hpp"

namespace trireme::model {

/// Norm of the last layer's result, before a head. A post-norm model has none: its head reads the result itself.
class FinalNorm {
 public:
  /// State between forward and backward.
  struct Saved {
    ConstTensorView input;
    ConstTensorView output;  ///< [s_local, b, h]; the input itself without a norm
    NormStatistics statistics;
  };

  /// Takes the parameters ln_f.*, where the model has them.
  FinalNorm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
            const ModelConfig& config)
      : context_(context) {
    if (!config.post_norm()) norm_.emplace(context, parameters, outer_norm_name(config), config);
  }

  /// x [s_local, b, h] must live as long as the result, whose tensors come from `arena`.
  Saved forward(const LayerShape& shape, ConstTensorView x, Arena& arena) const {
    if (!norm_) return {x, x, {}};
    const TensorView output = shape.allocate_residual(arena);
    const NormStatistics statistics = norm_->make_statistics(shape.local_rows(), shape.dtype, arena);
    norm_->forward(x, output, statistics);
    return {x, output, statistics};
  }
  /// Returns the tensor for the gradient of the output, [s_local, b, h]: dx without a norm, else from the work space.
  TensorView gradient(const LayerShape& shape, TensorView dx) const {
    return norm_ ? shape.allocate_residual(context_.workspace) : dx;
  }
  /// dx [s_local, b, h] from `gradient`, overwritten; accumulates the parameters' gradients.
  void backward(const Saved& saved, ConstTensorView gradient, TensorView dx) const {
    if (norm_) norm_->backward(gradient, saved.input, saved.statistics, {}, dx);
  }

 private:
  parallel::TensorContext context_;
  std::optional<Norm> norm_;
};

}  // namespace trireme::model
