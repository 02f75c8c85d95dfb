#include "src/model/blocks/gated_feed_forward.hpp"

namespace trireme::model {

using parallel::WeightGradient;

void GatedFeedForward::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  list.column_parallel(prefix + ".fc", config.linear_bias, {2, config.ffn_hidden, config.hidden}, 1);
  list.row_parallel(prefix + ".proj", config.linear_bias, config.hidden, config.ffn_hidden);
}

GatedFeedForward::GatedFeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                                   const std::string& prefix)
    : FeedForward(context, parameters, prefix),
      columns_(parameters.at(prefix + ".proj.weight").storage[1]),
      expansion_(context, parameters.at(prefix + ".fc.weight"), parameters.find(prefix + ".fc.bias")),
      projection_(context, parameters.at(prefix + ".proj.weight")) {}

std::unique_ptr<FeedForward::Saved> GatedFeedForward::make_saved(const LayerShape& shape, bool /*selective*/,
                                                                 Arena& arena) const {
  auto saved = std::make_unique<Saved>();
  saved->gate_up = shape.allocate_rows(arena, 2 * columns_);
  return saved;
}

std::unique_ptr<FeedForward::Gradients> GatedFeedForward::make_gradients(const LayerShape& shape, Arena& arena) const {
  auto gradients = std::make_unique<Gradients>();
  gradients->output = shape.allocate_residual(arena);
  gradients->gate_up = shape.allocate_rows(arena, 2 * columns_);
  return gradients;
}

TensorView GatedFeedForward::activate(const LayerShape& shape, const Saved& saved) const {
  const TensorView result = shape.allocate_rows(context_.workspace, columns_);
  context_.backend.elementwise().glu(context_.stream(), saved.gate_up, result);
  return result;
}

void GatedFeedForward::forward(const LayerShape& shape, ConstTensorView x, FeedForward::Saved& of_layer,
                               TensorView y) const {
  auto& saved = static_cast<Saved&>(of_layer);
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  expansion_.forward(shape.as_rows(x), Activation::none, {}, saved.gate_up);
  if (y) projection_.forward(activate(shape, saved), shape.as_rows(y));
}

void GatedFeedForward::backward_input(const LayerShape& shape, const FeedForward::Saved& of_layer,
                                      FeedForward::Gradients& gradients_of_layer, TensorView dx,
                                      WeightGradient weights) const {
  const auto& saved = static_cast<const Saved&>(of_layer);
  const auto& gradients = static_cast<const Gradients&>(gradients_of_layer);
  {
    const ArenaScope scope(context_.workspace);
    const TensorView activated = activate(shape, saved);
    const TensorView dactivated = shape.allocate_rows(context_.workspace, columns_);
    projection_.backward_input(shape.as_rows(gradients.output), activated, Activation::none, {}, dactivated,
                               WeightGradient::now);
    context_.backend.elementwise().glu_backward(context_.stream(), dactivated, saved.gate_up, gradients.gate_up);
  }
  expansion_.backward_input(gradients.gate_up, shape.as_rows(saved.input), shape.as_rows(dx), weights);
}

void GatedFeedForward::backward_weight(const LayerShape& shape, const FeedForward::Saved& of_layer,
                                       const FeedForward::Gradients& gradients_of_layer) const {
  const auto& saved = static_cast<const Saved&>(of_layer);
  const auto& gradients = static_cast<const Gradients&>(gradients_of_layer);
  expansion_.backward_weight(gradients.gate_up, shape.as_rows(saved.input));
}

void GatedFeedForward::keep_for_weights(const FeedForward::Saved& of_layer, FeedForward::Gradients& gradients_of_layer,
                                        TensorView /*unread*/) const {
  auto& gradients = static_cast<Gradients&>(gradients_of_layer);
  move(gradients.gate_up, static_cast<const Saved&>(of_layer).gate_up);
}

}  // namespace trireme::model
