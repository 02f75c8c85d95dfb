#include "src/model/blocks/dense_feed_forward.hpp"

namespace trireme::model {

using parallel::WeightGradient;

void DenseFeedForward::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  list.column_parallel(prefix + ".fc", config.linear_bias, {config.ffn_hidden, config.hidden}, 0);
  list.row_parallel(prefix + ".proj", config.linear_bias, config.hidden, config.ffn_hidden);
}

DenseFeedForward::DenseFeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                                   const std::string& prefix, Activation activation)
    : FeedForward(context, parameters, prefix),
      columns_(parameters.at(prefix + ".proj.weight").storage[1]),
      expansion_(context, parameters.at(prefix + ".fc.weight"), parameters.find(prefix + ".fc.bias")),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      activation_(activation) {}

std::unique_ptr<FeedForward::Saved> DenseFeedForward::make_saved(const LayerShape& shape, bool selective,
                                                                 Arena& arena) const {
  auto saved = std::make_unique<Saved>();
  saved->pre_activation = shape.allocate_rows(arena, columns_);
  if (!selective) saved->activated = shape.allocate_rows(arena, columns_);
  return saved;
}

std::unique_ptr<FeedForward::Gradients> DenseFeedForward::make_gradients(const LayerShape& shape, Arena& arena) const {
  auto gradients = std::make_unique<Gradients>();
  gradients->output = shape.allocate_residual(arena);
  gradients->pre_activation = shape.allocate_rows(arena, columns_);
  return gradients;
}

void DenseFeedForward::forward(const LayerShape& shape, ConstTensorView x, FeedForward::Saved& of_layer,
                               TensorView y) const {
  auto& saved = static_cast<Saved&>(of_layer);
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  const TensorView activated = saved.activated ? saved.activated : shape.allocate_rows(context_.workspace, columns_);
  expansion_.forward(shape.as_rows(x), activation_, saved.pre_activation, activated);
  if (y) projection_.forward(activated, shape.as_rows(y));
}

void DenseFeedForward::backward_input(const LayerShape& shape, const FeedForward::Saved& of_layer,
                                      FeedForward::Gradients& gradients_of_layer, TensorView dx,
                                      WeightGradient weights) const {
  const auto& saved = static_cast<const Saved&>(of_layer);
  const auto& gradients = static_cast<const Gradients&>(gradients_of_layer);
  {
    const ArenaScope scope(context_.workspace);
    TensorView activated = saved.activated;
    if (!activated) {
      activated = shape.allocate_rows(context_.workspace, columns_);
      context_.backend.elementwise().activate(context_.stream(), activation_, saved.pre_activation, activated);
    }
    projection_.backward_input(shape.as_rows(gradients.output), activated, activation_, saved.pre_activation,
                               gradients.pre_activation, saved.activated ? weights : WeightGradient::now);
  }
  expansion_.backward_input(gradients.pre_activation, shape.as_rows(saved.input), shape.as_rows(dx), weights);
}

void DenseFeedForward::backward_weight(const LayerShape& shape, const FeedForward::Saved& of_layer,
                                       const FeedForward::Gradients& gradients_of_layer) const {
  const auto& saved = static_cast<const Saved&>(of_layer);
  const auto& gradients = static_cast<const Gradients&>(gradients_of_layer);
  if (saved.activated) projection_.backward_weight(shape.as_rows(gradients.output), saved.activated);
  expansion_.backward_weight(gradients.pre_activation, shape.as_rows(saved.input));
}

void DenseFeedForward::keep_for_weights(const FeedForward::Saved& of_layer, FeedForward::Gradients& gradients_of_layer,
                                        TensorView unread) const {
  const auto& saved = static_cast<const Saved&>(of_layer);
  auto& gradients = static_cast<Gradients&>(gradients_of_layer);
  if (saved.activated) move(gradients.output, unread);
  move(gradients.pre_activation, saved.pre_activation);
}

}  // namespace trireme::model
