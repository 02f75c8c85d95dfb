#include "src/model/blocks/transformer_layer.hpp"

namespace trireme::model {
namespace {
std::string prefix_of(int layer) { return "h." + std::to_string(layer); }
}  // namespace

void TransformerLayer::declare(ParameterList& list, const ModelConfig& config, int layer) {
  const std::string prefix = prefix_of(layer);
  ResidualForm::declare(list, config, prefix, 1);
  SelfAttention::declare(list, config, prefix + ".attn");
  ResidualForm::declare(list, config, prefix, 2);
  if (config.has_experts(layer)) {
    Experts::declare(list, config, prefix + ".mlp");
  } else {
    FeedForward::declare(list, config, config.ffn_hidden, prefix + ".mlp");
  }
}

TransformerLayer::TransformerLayer(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                                   const ModelConfig& config, int layer, std::int64_t first_head)
    : context_(context),
      layer_(layer),
      attention_(context, parameters, prefix_of(layer) + ".attn", config, layer, first_head),
      attention_bias_(parameters, prefix_of(layer) + ".attn.proj.bias"),
      feed_forward_bias_(parameters, prefix_of(layer) + ".mlp.proj.bias"),
      residual_(ResidualForm::make(context, parameters, prefix_of(layer), config)) {
  const std::string prefix = prefix_of(layer) + ".mlp";
  if (config.has_experts(layer)) {
    experts_.emplace(context, parameters, prefix, config, layer);
  } else {
    feed_forward_.emplace(context, parameters, prefix, config);
  }
}

TransformerLayer::Saved TransformerLayer::make_saved(const LayerShape& shape, const RecomputedModules& recomputed,
                                                     Arena& arena) const {
  Saved saved{residual_->make_saved(shape, arena), attention_.make_saved(shape, recomputed.attention, arena), {}, {}};
  if (experts_) {
    saved.experts = experts_->make_saved(shape, recomputed, arena);
  } else {
    saved.feed_forward = feed_forward_->make_saved(shape, recomputed.activation, arena);
  }
  return saved;
}

TransformerLayer::Gradients TransformerLayer::make_gradients(const LayerShape& shape,
                                                             const RecomputedModules& recomputed, Arena& arena) const {
  Gradients gradients{attention_.make_gradients(shape, recomputed.attention, arena), {}, {}};
  if (experts_) {
    gradients.experts = experts_->make_gradients(shape, arena);
  } else {
    gradients.feed_forward = feed_forward_->make_gradients(shape, arena);
  }
  return gradients;
}

void TransformerLayer::feed_forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout,
                                    Saved& saved, TensorView y) const {
  if (experts_) return experts_->forward(shape, x, dropout, saved.experts, y);
  feed_forward_->forward(shape, x, saved.feed_forward, y);
}

void TransformerLayer::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                               TensorView y) const {
  residual_->forward(
      shape, x,
      {[&](ConstTensorView in, TensorView out) { attention_.forward(shape, in, dropout, saved.attention, out); },
       attention_bias_.value, dropout.at(layer_, DropoutSite::attention_output)},
      {[&](ConstTensorView in, TensorView out) { feed_forward(shape, in, dropout, saved, out); },
       feed_forward_bias_.value, dropout.at(layer_, DropoutSite::mlp_output)},
      saved.residual, y);
}

void TransformerLayer::backward_input(const LayerShape& shape, ConstTensorView dy, const DropoutPlan& dropout,
                                      Saved& saved, Gradients& gradients, TensorView dx,
                                      parallel::WeightGradient weights, double mean_gradient) const {
  residual_->backward(shape, dy,
                      {gradients.attention.output,
                       [&](TensorView din) {
                         attention_.backward_input(shape, dropout, saved.attention, gradients.attention, din, weights);
                       },
                       attention_bias_.gradient, dropout.at(layer_, DropoutSite::attention_output)},
                      {experts_ ? gradients.experts.output : gradients.feed_forward.output,
                       [&](TensorView din) {
                         if (experts_) {
                           experts_->backward(shape, saved.experts, gradients.experts, din, mean_gradient);
                         } else {
                           feed_forward_->backward_input(shape, saved.feed_forward, gradients.feed_forward, din,
                                                         weights);
                         }
                       },
                       feed_forward_bias_.gradient, dropout.at(layer_, DropoutSite::mlp_output)},
                      saved.residual, dx);
}

void TransformerLayer::keep_for_weights(const LayerShape& shape, const Saved& saved, Gradients& gradients) const {
  if (feed_forward_) {
    feed_forward_->keep_for_weights(saved.feed_forward, gradients.feed_forward,
                                    residual_->unread_by_weights(saved.residual));
  }
  attention_.keep_for_weights(shape, saved.attention, gradients.attention);
}

void TransformerLayer::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  if (feed_forward_) feed_forward_->backward_weight(shape, saved.feed_forward, gradients.feed_forward);
  attention_.backward_weight(shape, saved.attention, gradients.attention);
}

void TransformerLayer::forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts,
                                      const KeyValueCache& cache, Arena& arena, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  Saved saved{residual_->make_saved(shape, context_.workspace), {}, {}, {}};
  if (experts_) {
    saved.experts = experts_->make_saved(shape, {}, arena);
  } else {
    saved.feed_forward = feed_forward_->make_saved(shape, false, context_.workspace);
  }
  residual_->forward(
      shape, x,
      {[&](ConstTensorView in, TensorView out) { attention_.forward_cached(shape, in, texts, cache, out); },
       attention_bias_.value,
       {}},
      {[&](ConstTensorView in, TensorView out) { feed_forward(shape, in, {}, saved, out); },
       feed_forward_bias_.value,
       {}},
      saved.residual, y);
}

}  // namespace trireme::model
