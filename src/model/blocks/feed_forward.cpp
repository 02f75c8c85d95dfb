#include "src/model/blocks/feed_forward.hpp"

namespace trireme::model {

using parallel::WeightGradient;

void FeedForward::declare(ParameterList& list, const ModelConfig& config, std::int64_t width,
                          const std::string& prefix) {
  const std::int64_t f = width, h = config.hidden;
  // Gate and up are each split over the tensor ranks.
  list.column_parallel(prefix + ".fc", config.linear_bias, config.gated ? Shape{2, f, h} : Shape{f, h},
                       config.gated ? 1 : 0);
  list.row_parallel(prefix + ".proj", config.linear_bias, h, f);
}

FeedForward::FeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                         const std::string& prefix, const ModelConfig& config)
    : context_(context),
      columns_(parameters.at(prefix + ".proj.weight").storage[1]),
      expansion_(context, parameters.at(prefix + ".fc.weight"), parameters.find(prefix + ".fc.bias")),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      activation_{config.gated, config.gated ? config.gate : config.activation} {}

FeedForward::Saved FeedForward::make_saved(const LayerShape& shape, bool selective, Arena& arena) const {
  Saved saved;
  saved.expanded = shape.allocate_rows(arena, activation_.expanded_columns(columns_));
  if (!activation_.gated && !selective) saved.activated = shape.allocate_rows(arena, columns_);
  return saved;
}

FeedForward::Gradients FeedForward::make_gradients(const LayerShape& shape, Arena& arena) const {
  return {shape.allocate_residual(arena), shape.allocate_rows(arena, activation_.expanded_columns(columns_))};
}

void FeedForward::forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  if (activation_.gated) {
    expansion_.forward(shape.as_rows(x), Activation::none, {}, saved.expanded);
    if (y) projection_.forward(activate(saved), shape.as_rows(y));
    return;
  }
  const TensorView activated = saved.activated ? saved.activated : shape.allocate_rows(context_.workspace, columns_);
  expansion_.forward(shape.as_rows(x), activation_.function, saved.expanded, activated);
  if (y) projection_.forward(activated, shape.as_rows(y));
}

void FeedForward::backward_input(const LayerShape& shape, const Saved& saved, const Gradients& gradients, TensorView dx,
                                 WeightGradient weights) const {
  const ConstTensorView doutput = shape.as_rows(gradients.output);
  {
    const ArenaScope scope(context_.workspace);
    const TensorView activated = saved.activated ? saved.activated : activate(saved);
    if (activation_.gated) {
      const TensorView dactivated = shape.allocate_rows(context_.workspace, columns_);
      projection_.backward_input(doutput, activated, Activation::none, {}, dactivated, WeightGradient::now);
      activation_.backward(context_.backend, context_.stream(), dactivated, saved.expanded, gradients.expanded);
    } else {
      projection_.backward_input(doutput, activated, activation_.function, saved.expanded, gradients.expanded,
                                 saved.activated ? weights : WeightGradient::now);
    }
  }
  expansion_.backward_input(gradients.expanded, shape.as_rows(saved.input), shape.as_rows(dx), weights);
}

void FeedForward::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  if (saved.activated) projection_.backward_weight(shape.as_rows(gradients.output), saved.activated);
  expansion_.backward_weight(gradients.expanded, shape.as_rows(saved.input));
}

void FeedForward::keep_for_weights(const Saved& saved, Gradients& gradients, TensorView unread) const {
  if (saved.activated) move(gradients.output, unread);
  move(gradients.expanded, saved.expanded);
}

TensorView FeedForward::activate(const Saved& saved) const {
  return activation_.forward(context_.backend, context_.stream(), saved.expanded, context_.workspace);
}

void FeedForward::move(TensorView& gradient, TensorView to) const {
  context_.backend.elementwise().convert(context_.stream(), gradient, to);
  gradient = to;
}

}  // namespace trireme::model
