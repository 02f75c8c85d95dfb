#include "src/model/layers/transformer_layer.hpp"

namespace trireme::model {
namespace {
std::string prefix_of(int layer) { return "h." + std::to_string(layer); }
}  // namespace

TransformerLayer::Saved TransformerLayer::Saved::allocate(const LayerShape& shape, bool selective, Arena& arena) {
  Saved saved;
  saved.normed_1 = shape.allocate_residual(arena);
  saved.statistics_1 = shape.allocate_statistics(arena);
  saved.attention = SelfAttention::Saved::allocate(shape, selective, arena);
  saved.middle = shape.allocate_residual(arena);
  (shape.norm_placement == NormPlacement::pre ? saved.normed_2 : saved.sum_2) = shape.allocate_residual(arena);
  saved.statistics_2 = shape.allocate_statistics(arena);
  saved.mlp = Mlp::Saved::allocate(shape, selective, arena);
  return saved;
}

TransformerLayer::Gradients TransformerLayer::Gradients::allocate(const LayerShape& shape, bool selective,
                                                                  Arena& arena) {
  return {SelfAttention::Gradients::allocate(shape, selective, arena), Mlp::Gradients::allocate(shape, arena)};
}

TransformerLayer::TransformerLayer(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                                   const ModelConfig& config, int layer, std::int64_t first_head)
    : context_(context),
      layer_(layer),
      epsilon_(config.norm_epsilon),
      norm_1_(parameters, prefix_of(layer) + ".ln_1"),
      attention_(context, parameters, prefix_of(layer) + ".attn", config, layer, first_head),
      attention_bias_(value_of(parameters.find(prefix_of(layer) + ".attn.proj.bias"))),
      attention_bias_gradient_(gradient_of(parameters.find(prefix_of(layer) + ".attn.proj.bias"))),
      norm_2_(parameters, prefix_of(layer) + ".ln_2"),
      mlp_(context, parameters, prefix_of(layer) + ".mlp", config),
      mlp_bias_(value_of(parameters.find(prefix_of(layer) + ".mlp.proj.bias"))),
      mlp_bias_gradient_(gradient_of(parameters.find(prefix_of(layer) + ".mlp.proj.bias"))) {}

void TransformerLayer::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                               TensorView y) const {
  const auto arrangement = shape.norm_placement == NormPlacement::pre ? &TransformerLayer::forward_pre_norm
                                                                      : &TransformerLayer::forward_post_norm;
  (this->*arrangement)(shape, x, dropout, saved, y);
}

void TransformerLayer::forward_pre_norm(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout,
                                        Saved& saved, TensorView y) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView branch = shape.allocate_residual(context_.workspace);
  saved.input = x;
  backend.norm().normalise(stream, x, norm_1_.weight, norm_1_.bias, epsilon_, saved.normed_1, saved.statistics_1);
  attention_.forward(shape, saved.normed_1, dropout, saved.attention, branch);
  backend.norm().bias_dropout_add_norm(stream, branch, attention_bias_, x,
                                       dropout.at(layer_, DropoutSite::attention_output), norm_2_.weight, norm_2_.bias,
                                       epsilon_, saved.middle, saved.normed_2, saved.statistics_2);
  mlp_.forward(shape, saved.normed_2, saved.mlp, y ? branch : TensorView());
  if (!y) return;
  backend.elementwise().bias_dropout_add(stream, branch, mlp_bias_, saved.middle,
                                         dropout.at(layer_, DropoutSite::mlp_output), y);
}

void TransformerLayer::forward_post_norm(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout,
                                         Saved& saved, TensorView y) const {
  NormKernels& norm = context_.backend.norm();
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView branch = shape.allocate_residual(context_.workspace);
  saved.input = x;
  attention_.forward(shape, x, dropout, saved.attention, branch);
  norm.bias_dropout_add_norm(stream, branch, attention_bias_, x, dropout.at(layer_, DropoutSite::attention_output),
                             norm_1_.weight, norm_1_.bias, epsilon_, saved.middle, saved.normed_1, saved.statistics_1);
  mlp_.forward(shape, saved.normed_1, saved.mlp, branch);
  if (!y) y = shape.allocate_residual(context_.workspace);  // backward reads the sum before it
  norm.bias_dropout_add_norm(stream, branch, mlp_bias_, saved.normed_1, dropout.at(layer_, DropoutSite::mlp_output),
                             norm_2_.weight, norm_2_.bias, epsilon_, saved.sum_2, y, saved.statistics_2);
}

void TransformerLayer::backward_norm(const NormParameters& norm, ConstTensorView dy, ConstTensorView x,
                                     const NormStatistics& statistics, ConstTensorView dresidual, TensorView dx) const {
  context_.backend.norm().normalise_backward(context_.stream(), dy, x, norm.weight, statistics, dresidual, dx,
                                             norm.weight_gradient, norm.bias_gradient);
}

void TransformerLayer::backward_input(const LayerShape& shape, ConstTensorView dy, const DropoutPlan& dropout,
                                      const Saved& saved, Gradients& gradients, TensorView dx,
                                      parallel::WeightGradient weights) const {
  Stream& stream = context_.stream();
  ElementwiseKernels& elementwise = context_.backend.elementwise();
  const bool pre_norm = shape.norm_placement == NormPlacement::pre;
  const ArenaScope scope(context_.workspace);
  const TensorView dmiddle = shape.allocate_residual(context_.workspace);
  if (!pre_norm) {
    const TensorView dsum = shape.allocate_residual(context_.workspace);
    backward_norm(norm_2_, dy, saved.sum_2, saved.statistics_2, {}, dsum);
    dy = dsum;  // gradient of the second sum of residual and branch
  }
  elementwise.bias_dropout_add_backward(stream, dy, dropout.at(layer_, DropoutSite::mlp_output), gradients.mlp.output,
                                        mlp_bias_gradient_);
  mlp_.backward_input(shape, saved.mlp, gradients.mlp, dmiddle, weights);
  if (pre_norm) {
    backward_norm(norm_2_, dmiddle, saved.middle, saved.statistics_2, dy, dmiddle);
  } else {
    elementwise.add(stream, dy, dmiddle);
    backward_norm(norm_1_, dmiddle, saved.middle, saved.statistics_1, {}, dmiddle);
  }
  elementwise.bias_dropout_add_backward(stream, dmiddle, dropout.at(layer_, DropoutSite::attention_output),
                                        gradients.attention.output, attention_bias_gradient_);
  attention_.backward_input(shape, dropout, saved.attention, gradients.attention, dx, weights);
  if (pre_norm) {
    backward_norm(norm_1_, dx, saved.input, saved.statistics_1, dmiddle, dx);
  } else {
    elementwise.add(stream, dmiddle, dx);
  }
}

void TransformerLayer::keep_for_weights(const Saved& saved, Gradients& gradients) const {
  const auto move = [&](TensorView& gradient, TensorView unread) {
    context_.backend.elementwise().convert(context_.stream(), gradient, unread);
    gradient = unread;
  };
  if (saved.mlp.activated) move(gradients.mlp.output, saved.middle);
  move(gradients.mlp.pre_activation, saved.mlp.pre_activation);
  move(gradients.attention.qkv, saved.attention.qkv);
}

void TransformerLayer::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  mlp_.backward_weight(shape, saved.mlp, gradients.mlp);
  attention_.backward_weight(shape, saved.attention, gradients.attention);
}

void TransformerLayer::forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts,
                                      const KeyValueCache& cache, TensorView y) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  Saved saved = Saved::allocate(shape, false, context_.workspace);
  const TensorView branch = shape.allocate_residual(context_.workspace);
  backend.norm().normalise(stream, x, norm_1_.weight, norm_1_.bias, epsilon_, saved.normed_1, saved.statistics_1);
  attention_.forward_cached(shape, saved.normed_1, texts, cache, branch);
  backend.norm().bias_dropout_add_norm(stream, branch, attention_bias_, x, {}, norm_2_.weight, norm_2_.bias, epsilon_,
                                       saved.middle, saved.normed_2, saved.statistics_2);
  mlp_.forward(shape, saved.normed_2, saved.mlp, branch);
  backend.elementwise().bias_dropout_add(stream, branch, mlp_bias_, saved.middle, {}, y);
}

}  // namespace trireme::model
