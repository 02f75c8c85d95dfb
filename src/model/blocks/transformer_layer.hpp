#pragma once

#include <memory>
#include <optional>

#include "src/model/blocks/attention.hpp"
#include "src/model/blocks/experts.hpp"
#include "src/model/blocks/residual_form.hpp"

namespace trireme::model {

/// One transformer layer: attention and a feed-forward block, dense or of experts, as branches of the residual stream.
class TransformerLayer {
 public:
  struct Saved {
    ResidualForm::Saved residual;
    SelfAttention::Saved attention;
    FeedForward::Saved feed_forward;  ///< in a dense layer
    Experts::Saved experts;           ///< in a layer with experts
  };
  struct Gradients {
    SelfAttention::Gradients attention;
    FeedForward::Gradients feed_forward;
    Experts::Gradients experts;
  };

  /// Adds the parameters h.`layer`.*; `layer` counts over the full model.
  static void declare(ParameterList& list, const ModelConfig& config, int layer);
  /// Takes these parameters.
  TransformerLayer(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const ModelConfig& config, int layer, std::int64_t first_head);

  Saved make_saved(const LayerShape& shape, const RecomputedModules& recomputed, Arena& arena) const {
    return make_saved(shape, recomputed, make_residual(shape, arena), arena);
  }
  /// The same, with a result of make_residual of any layer.
  Saved make_saved(const LayerShape& shape, const RecomputedModules& recomputed, const ResidualForm::Saved& residual,
                   Arena& arena) const;
  ResidualForm::Saved make_residual(const LayerShape& shape, Arena& arena) const {
    return residual_->make_saved(shape, arena);
  }
  Gradients make_gradients(const LayerShape& shape, const RecomputedModules& recomputed, Arena& arena) const;

  /// Overwrites y [s_local, b, h]; x must outlive `saved`. An empty y only fills `saved`. `handover` completes x and y:
  /// see ResidualForm::forward.
  void forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
               ResidualForm::Handover& handover, TensorView y) const;
  /// Computes dx from dy, overwritten, and the gradients of norms, output biases and experts, accumulated; fills
  /// `gradients`. `handover` completes dy, dx and gradients of norms: see ResidualForm::backward. `mean_gradient`: see
  /// Experts::backward.
  void backward_input(const LayerShape& shape, ConstTensorView dy, const DropoutPlan& dropout, Saved& saved,
                      Gradients& gradients, ResidualForm::Handover& handover, TensorView dx,
                      parallel::WeightGradient weights, double mean_gradient) const;
  /// Moves the `gradients` that backward_weight reads to tensors of `saved` that are no longer read. A micro-batch
  /// waiting for backward_weight then takes no more memory than one waiting for its backward.
  void keep_for_weights(const LayerShape& shape, const Saved& saved, Gradients& gradients) const;
  /// Accumulates the weight gradients that backward_input left.
  void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const;

  /// Runs forward on the newest positions in generation, without dropout (SelfAttention::forward_cached). `arena`, not
  /// the work space, is for the route of tokens to experts.
  void forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts, const KeyValueCache& cache,
                      Arena& arena, TensorView y) const;

  /// The experts, if any.
  const std::optional<Experts>& experts() const { return experts_; }

 private:
  /// Returns the feed-forward block in forward. `shape` and `saved` must outlive it.
  ResidualForm::Branch feed_forward(const LayerShape& shape, const DropoutPlan& dropout, Saved& saved) const;

  parallel::TensorContext context_;
  int layer_;
  SelfAttention attention_;
  OutputBias attention_bias_;
  std::optional<FeedForward> feed_forward_;
  std::optional<Experts> experts_;
  OutputBias feed_forward_bias_;
  std::unique_ptr<ResidualForm> residual_;
};

}  // namespace trireme::model
