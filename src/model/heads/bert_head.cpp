#include "src/model/heads/bert_head.hpp"

namespace trireme::model {

BertHead::BertHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                   const parallel::ParameterBuffer& parameters, const ModelConfig& config, std::int64_t chunks)
    : context_(context),
      activation_(config.activation),
      final_norm_(context, parameters, config),
      dense_(context, parameters, "mlm.dense"),
      norm_(context, parameters, "mlm.ln", config),
      tokens_(context, vocabulary, parameters.at(token_table_name(config)), &parameters.at("mlm.out.bias"), chunks) {
  if (config.binary_head) order_.emplace(context, parameters, "sop");
}

std::unique_ptr<OutputHead::Saved> BertHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                     const StageMode& mode, ConstTensorView x, Arena& arena) {
  auto saved = std::make_unique<Saved>();
  saved->mark = arena.mark();
  saved->hidden = final_norm_.forward(shape, x, arena);
  const ConstTensorView hidden = saved->hidden.output;
  saved->pre_activation = shape.allocate_residual(arena);
  saved->activated = shape.allocate_residual(arena);
  saved->normed = shape.allocate_residual(arena);
  saved->statistics = norm_.make_statistics(shape.local_rows(), shape.dtype, arena);
  dense_.forward(shape.as_rows(hidden), activation_, shape.as_rows(saved->pre_activation),
                 shape.as_rows(saved->activated));
  norm_.forward(saved->activated, saved->normed, saved->statistics);
  if (order_) saved->order = order_->forward(shape, batch, mode, hidden, arena);
  saved->tokens = tokens_.forward(shape, batch, mode, saved->normed, arena);
  return saved;
}

void BertHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& of_forward, TensorView dx) {
  const auto& saved = static_cast<const Saved&>(of_forward);
  const ArenaScope scope(context_.workspace);
  const TensorView gradient = shape.allocate_residual(context_.workspace);  // gradient of each tensor in turn, in place
  const TensorView dhidden = final_norm_.gradient(shape, dx);
  tokens_.backward(shape, batch, mode, saved.tokens, gradient);
  norm_.backward(gradient, saved.activated, saved.statistics, {}, gradient);
  context_.backend.elementwise().activate_backward(context_.stream(), activation_, gradient, saved.pre_activation,
                                                   gradient);
  dense_.backward(shape.as_rows(gradient), shape.as_rows(saved.hidden.output), Activation::none, {},
                  shape.as_rows(dhidden));
  if (order_) order_->backward(shape, batch, mode.sample_loss_gradient, *saved.order, dhidden);
  final_norm_.backward(saved.hidden, dhidden, dx);
}

}  // namespace trireme::model
