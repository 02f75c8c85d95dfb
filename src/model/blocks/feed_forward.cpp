#include "src/model/blocks/feed_forward.hpp"

#include <algorithm>

namespace trireme::model {

using parallel::RowChunk;
using parallel::WeightGradient;
using Gathering = parallel::TensorContext::Gathering;

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
      activation_{config.gated, config.gated ? config.gate : config.activation} {
  adapt(expansion_, parameters, prefix + ".fc", config);
  adapt(projection_, parameters, prefix + ".proj", config);
}

FeedForward::Saved FeedForward::make_saved(const LayerShape& shape, bool selective, Arena& arena) const {
  Saved saved;
  saved.expanded = shape.allocate_rows(arena, activation_.expanded_columns(columns_));
  if (activation_.gated || selective || !projection_.trains()) return saved;
  const Shape matrix = {saved.expanded.shape()[0], columns_};
  const std::int64_t copy_bytes = projection_.input_copy_bytes(matrix[0], columns_);
  const std::int64_t bytes = matrix[0] * columns_ * static_cast<std::int64_t>(size_of(shape.dtype));
  const TensorView memory = arena.allocate(DType::uint8, {std::max(bytes, copy_bytes)});
  saved.activated = TensorView(memory.data(), shape.dtype, matrix);
  if (copy_bytes > 0) saved.activated_copy.memory = memory;
  return saved;
}

FeedForward::Gradients FeedForward::make_gradients(const LayerShape& shape, Arena& arena) const {
  return {shape.allocate_residual(arena), shape.allocate_rows(arena, activation_.expanded_columns(columns_))};
}

void FeedForward::forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  Gathering rows = context_.gather(shape.as_rows(x));
  const TensorView sum = y ? shape.as_rows(y) : y, term = y ? context_.term_of(sum) : y;
  forward_chunk({}, rows, saved, term);
  if (y) context_.sum_into(sum, term).wait(context_.stream());
}

void FeedForward::forward_chunk(RowChunk chunk, Gathering& x, Saved& saved, TensorView term) const {
  const ArenaScope scope(context_.workspace);
  saved.input = x.own();
  const ConstTensorView rows = x.rows(chunk);
  if (activation_.gated) {
    expansion_.multiply(chunk, rows, Activation::none, {}, saved.expanded);
    if (term) projection_.multiply(activate(chunk.of(saved.expanded)), term);
    return;
  }
  saved.activated_copy.made = false;
  // Without a copy, rows that are kept are those of the activation.
  if (term && rounds_activation() && (!saved.activated || saved.activated_copy.memory)) {
    expansion_.multiply(chunk, rows, Activation::none, {}, saved.expanded);
    return projection_.multiply(chunk.of(saved.expanded), term, &saved.activated_copy, {activation_.function});
  }
  const TensorView activated =
      saved.activated ? saved.activated
                      : context_.workspace.allocate(saved.expanded.dtype(), {saved.expanded.shape()[0], columns_});
  expansion_.multiply(chunk, rows, activation_.function, saved.expanded, activated);
  if (term) projection_.multiply(chunk.of(activated), term);
}

void FeedForward::backward_input(const LayerShape& shape, const Saved& saved, const Gradients& gradients, TensorView dx,
                                 WeightGradient weights) const {
  const ArenaScope scope(context_.workspace);
  {
    const ArenaScope gathered_scope(context_.workspace);
    Gathering doutput = context_.gather(shape.as_rows(gradients.output));
    backward_projection(doutput, saved, gradients, weights, [] {});
  }
  const TensorView sum = shape.as_rows(dx);
  backward_expansion(shape, saved, gradients, dx, weights, context_.term_of(sum), nullptr).wait(context_.stream());
}

void FeedForward::backward_projection(Gathering& doutput, const Saved& saved, const Gradients& gradients,
                                      WeightGradient weights, const std::function<void()>& filled) const {
  const std::optional<ArenaScope> scope = context_.operand_scope();
  const bool accumulates = projection_.trains() && !(saved.activated && weights == WeightGradient::later);
  Fp8Copy copy;
  for (int i = 0; i < context_.row_chunks; ++i) {
    const RowChunk chunk = context_.chunk(i);
    const ConstTensorView rows = doutput.rows(chunk);
    const TensorView expanded = chunk.of(saved.expanded), dexpanded = chunk.of(gradients.expanded);
    if (accumulates) copy = projection_.gradient_copy(rows);
    if (!activation_.gated) {
      projection_.backward_input(rows, rounds_gradient(weights) ? Activation::none : activation_.function, expanded,
                                 dexpanded, &copy);
      continue;
    }
    const ArenaScope chunk_scope(context_.workspace);
    const TensorView dactivated = activation_.allocate(context_.workspace, expanded);
    projection_.backward_input(rows, Activation::none, {}, dactivated, &copy);
    activation_.backward(context_.backend, context_.stream(), dactivated, expanded, dexpanded);
  }
  filled();
  if (!accumulates) return;
  accumulate_projection(doutput.all(), saved, &copy);
}

void FeedForward::accumulate_projection(ConstTensorView doutput, const Saved& saved, Fp8Copy* copy) const {
  Fp8Copy input = saved.activated_copy;
  if (input.made || (!saved.activated && rounds_activation())) {
    projection_.backward_weight(doutput, saved.expanded, copy, input.made ? &input : nullptr, {activation_.function});
  } else {
    projection_.backward_weight(doutput, saved.activated ? saved.activated : activate(saved.expanded), copy);
  }
}

parallel::ChunkWorks FeedForward::backward_expansion(const LayerShape& shape, const Saved& saved,
                                                     const Gradients& gradients, TensorView dx, WeightGradient weights,
                                                     TensorView term, Gathering* input) const {
  Fp8Source source;
  if (rounds_gradient(weights)) source = {activation_.function, saved.expanded};
  return expansion_.backward_input(gradients.expanded, saved.input, shape.as_rows(dx), weights, term, input, source);
}

void FeedForward::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  if (saved.activated && projection_.trains()) {
    const ArenaScope scope(context_.workspace);
    accumulate_projection(context_.gather_now(shape.as_rows(gradients.output)), saved, nullptr);
  }
  expansion_.backward_weight(gradients.expanded, saved.input);
}

void FeedForward::keep_for_weights(const Saved& saved, Gradients& gradients, TensorView unread) const {
  if (saved.activated) move(gradients.output, unread);
  move(gradients.expanded, saved.expanded);
}

TensorView FeedForward::activate(TensorView expanded) const {
  return activation_.forward(context_.backend, context_.stream(), expanded, context_.workspace);
}

void FeedForward::move(TensorView& gradient, TensorView to) const {
  context_.backend.elementwise().convert(context_.stream(), gradient, to);
  gradient = to;
}

}  // namespace trireme::model
