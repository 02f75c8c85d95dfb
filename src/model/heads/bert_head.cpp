#include "src/model/heads/bert_head.hpp"

namespace trireme::model {

BertHead::BertHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                   const parallel::ParameterBuffer& parameters, const ModelConfig& config, std::int64_t chunks)
    : context_(context),
      epsilon_(config.norm_epsilon),
      activation_(config.activation),
      final_norm_(context, parameters, config),
      dense_(context, parameters, "mlm.dense"),
      norm_(parameters, "mlm.ln"),
      tokens_(context, vocabulary, parameters.at(token_table_name(config)), &parameters.at("mlm.out.bias"), chunks) {
  if (config.binary_head) order_.emplace(context, parameters, "sop");
}

std::unique_ptr<OutputHead::Saved> BertHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                     const StageMode& mode, ConstTensorView x, Arena& arena) {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  auto saved = std::make_unique<Saved>();
  saved->mark = arena.mark();
  saved->hidden = final_norm_.forward(shape, x, arena);
  const ConstTensorView hidden = saved->hidden.output;
  saved->pre_activation = shape.allocate_residual(arena);
  saved->activated = shape.allocate_residual(arena);
  saved->normed = shape.allocate_residual(arena);
  saved->statistics = shape.allocate_statistics(arena);
  dense_.forward(shape.as_rows(hidden), activation_, shape.as_rows(saved->pre_activation),
                 shape.as_rows(saved->activated));
  backend.norm().normalise(stream, saved->activated, norm_.weight, norm_.bias, epsilon_, saved->normed,
                           saved->statistics);
  if (order_) saved->order = order_->forward(shape, batch, mode, hidden, arena);
  saved->tokens = tokens_.forward(shape, batch, mode, saved->normed, arena);
  return saved;
}

void BertHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& of_forward, TensorView dx) {
  const auto& saved = static_cast<const Saved&>(of_forward);
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView gradient = shape.allocate_residual(context_.workspace);  // gradient of each tensor in turn, in place
  const TensorView dhidden = final_norm_.gradient(shape, dx);
  tokens_.backward(shape, batch, mode, saved.tokens, gradient);
  backend.norm().normalise_backward(stream, gradient, saved.activated, norm_.weight, saved.statistics, {}, gradient,
                                    norm_.weight_gradient, norm_.bias_gradient);
  backend.elementwise().activate_backward(stream, activation_, gradient, saved.pre_activation, gradient);
  dense_.backward(shape.as_rows(gradient), shape.as_rows(saved.hidden.output), Activation::none, {},
                  shape.as_rows(dhidden));
  if (order_) order_->backward(shape, batch, mode.sample_loss_gradient, *saved.order, dhidden);
  final_norm_.backward(saved.hidden, dhidden, dx);
}

}  // namespace trireme::model
