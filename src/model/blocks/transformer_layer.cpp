#include "src/model/blocks/transformer_layer.hpp"

namespace trireme::model {

using parallel::RowChunk;
using parallel::WeightGradient;
using Gathering = parallel::TensorContext::Gathering;

namespace {
std::string prefix_of(int layer) { return "h." + std::to_string(layer); }

/// The context of a layer, which collects the gradients of its weights if nothing else decides their order or memory:
/// tensor ranks sum beside them, and adapters and latents are made for one product.
parallel::TensorContext collecting(parallel::TensorContext context, const ModelConfig& config, int layer) {
  context.collects_weight_gradients = context.tensor_group.size() == 1 && context.row_chunks == 1 &&
                                      !config.has_experts(layer) && !config.adapters.any() && !config.latent.used;
  return context;
}
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
    : context_(collecting(context, config, layer)),
      layer_(layer),
      attention_(context_, parameters, prefix_of(layer) + ".attn", config, layer, first_head),
      attention_bias_(parameters, prefix_of(layer) + ".attn.proj.bias"),
      feed_forward_bias_(parameters, prefix_of(layer) + ".mlp.proj.bias"),
      residual_(ResidualForm::make(context_, parameters, prefix_of(layer), config)) {
  const std::string prefix = prefix_of(layer) + ".mlp";
  if (config.has_experts(layer)) {
    experts_.emplace(context_, parameters, prefix, config, layer);
  } else {
    feed_forward_.emplace(context_, parameters, prefix, config);
  }
}

TransformerLayer::Saved TransformerLayer::make_saved(const LayerShape& shape, const RecomputedModules& recomputed,
                                                     const ResidualForm::Saved& residual, Arena& arena) const {
  Saved saved{residual, attention_.make_saved(shape, recomputed.attention, arena), {}, {}};
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

ResidualForm::Branch TransformerLayer::feed_forward(const LayerShape& shape, const DropoutPlan& dropout,
                                                    Saved& saved) const {
  ResidualForm::Branch branch;
  branch.bias = feed_forward_bias_.value;
  branch.dropout = dropout.at(layer_, DropoutSite::mlp_output);
  branch.gathers = !experts_;
  if (experts_) {
    branch.whole = [=, this, &shape, &saved](Gathering& x, TensorView y) {
      experts_->forward(shape, x.own(), dropout, saved.experts, y);
    };
  } else {
    branch.chunk = [this, &saved](RowChunk chunk, Gathering& x, TensorView term) {
      feed_forward_->forward_chunk(chunk, x, saved.feed_forward, term);
    };
  }
  return branch;
}

void TransformerLayer::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                               ResidualForm::Handover& handover, TensorView y) const {
  TensorView heads;
  const ResidualForm::Branch attention{.whole =
                                           [&](Gathering& in, TensorView out) {
                                             heads = attention_.forward_heads(shape, in, dropout, saved.attention,
                                                                              static_cast<bool>(out));
                                           },
                                       .chunk =
                                           [&](RowChunk chunk, Gathering&, TensorView term) {
                                             if (term) attention_.project(chunk.of(heads), term);
                                           },
                                       .gathers = attention_.gathers_input(),
                                       .bias = attention_bias_.value,
                                       .dropout = dropout.at(layer_, DropoutSite::attention_output)};
  residual_->forward(shape, x, attention, feed_forward(shape, dropout, saved), saved.residual, handover, y);
}

void TransformerLayer::backward_input(const LayerShape& shape, ConstTensorView dy, const DropoutPlan& dropout,
                                      Saved& saved, Gradients& gradients, ResidualForm::Handover& handover,
                                      TensorView dx, parallel::WeightGradient weights, double mean_gradient) const {
  const bool collects = context_.collects_weight_gradients && weights == WeightGradient::now;
  if (collects) context_.backend.gemm().collect_weight_gradients();
  // The inputs that the weights' gradients read are gathered beside earlier products, not before this rank's sums.
  std::optional<Gathering> attention_input, feed_forward_input;
  const auto gather = [&](std::optional<Gathering>& input, ConstTensorView x) {
    if (weights == WeightGradient::now && context_.overlap) input.emplace(context_.gather(x, handover.input_rows()));
  };
  const auto started = [](std::optional<Gathering>& input) { return input ? &*input : nullptr; };
  const ResidualForm::BranchGradient attention{
      .output = gradients.attention.output,
      .output_part =
          [&](Gathering& doutput) {
            attention_.backward_heads(shape, doutput, dropout, saved.attention, gradients.attention, [&] {
              if (attention_.gathers_input()) gather(attention_input, saved.attention.input);
            });
          },
      .input_part =
          [&](TensorView din, TensorView term) {
            parallel::ChunkWorks sums = attention_.backward_qkv(shape, saved.attention, gradients.attention, din,
                                                                weights, term, started(attention_input));
            if (collects) context_.backend.gemm().run_collected(context_.stream());
            return sums;
          },
      .bias_gradient = attention_bias_.gradient,
      .dropout = dropout.at(layer_, DropoutSite::attention_output)};
  ResidualForm::BranchGradient feed_forward{
      .output = experts_ ? gradients.experts.output : gradients.feed_forward.output,
      .output_part = {},
      .input_part = {},
      .bias_gradient = feed_forward_bias_.gradient,
      .dropout = dropout.at(layer_, DropoutSite::mlp_output)};
  if (experts_) {
    feed_forward.input_part = [&](TensorView din, TensorView) {
      experts_->backward(shape, saved.experts, gradients.experts, din, mean_gradient);
      return parallel::ChunkWorks();
    };
  } else {
    feed_forward.output_part = [&](Gathering& doutput) {
      feed_forward_->backward_projection(doutput, saved.feed_forward, gradients.feed_forward, weights,
                                         [&] { gather(feed_forward_input, saved.feed_forward.input); });
    };
    feed_forward.input_part = [&](TensorView din, TensorView term) {
      return feed_forward_->backward_expansion(shape, saved.feed_forward, gradients.feed_forward, din, weights, term,
                                               started(feed_forward_input));
    };
  }
  residual_->backward(shape, dy, attention, feed_forward, saved.residual, handover, dx);
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
  ResidualForm::Branch attention;
  attention.whole = [&](Gathering& in, TensorView out) {
    attention_.forward_cached(shape, in.own(), texts, cache, out);
  };
  attention.gathers = false;
  attention.bias = attention_bias_.value;
  ResidualForm::Handover handover(context_, shape);
  residual_->forward(shape, x, attention, feed_forward(shape, {}, saved), saved.residual, handover, y);
  handover.finish();
}

}  // namespace trireme::model
