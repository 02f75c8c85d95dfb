#include "src/model/heads/language_model_head.hpp"

#include "src/model/model_parameters.hpp"

namespace trireme::model {

LanguageModelHead::LanguageModelHead(const parallel::TensorContext& context,
                                     const parallel::VocabularyPartition& vocabulary,
                                     const parallel::ParameterBuffer& parameters, const ModelConfig& config)
    : context_(context),
      epsilon_(config.norm_epsilon),
      norm_(parameters, outer_norm_name(config)),
      tokens_(context, vocabulary, parameters.at(config.has_tied_head() ? token_table_name(config) : "lm_head.weight"),
              nullptr) {}

void LanguageModelHead::normalise(ConstTensorView x, TensorView normed, const NormStatistics& statistics) const {
  context_.backend.norm().normalise(context_.stream(), x, norm_.weight, norm_.bias, epsilon_, normed, statistics);
}

std::unique_ptr<OutputHead::Saved> LanguageModelHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                              const StageMode&, ConstTensorView x, Arena& arena) {
  auto saved = std::make_unique<Saved>();
  saved->mark = arena.mark();
  saved->input = x;
  saved->normed = shape.allocate_residual(arena);
  saved->statistics = shape.allocate_statistics(arena);
  normalise(x, saved->normed, saved->statistics);
  saved->tokens = tokens_.forward(shape, batch, saved->normed, arena);
  return saved;
}

void LanguageModelHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                 const OutputHead::Saved& of_forward, TensorView dx) const {
  const auto& saved = static_cast<const Saved&>(of_forward);
  const ArenaScope scope(context_.workspace);
  const TensorView dnormed = shape.allocate_residual(context_.workspace);
  tokens_.backward(shape, batch, mode.loss_gradient, saved.tokens, dnormed);
  context_.backend.norm().normalise_backward(context_.stream(), dnormed, saved.input, norm_.weight, saved.statistics,
                                             {}, dx, norm_.weight_gradient, norm_.bias_gradient);
}

void LanguageModelHead::logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
  const ArenaScope scope(context_.workspace);
  const TensorView normed = shape.allocate_residual(context_.workspace);
  normalise(x, normed, shape.allocate_statistics(context_.workspace));
  tokens_.logits(shape, normed, logits);
}

}  // namespace trireme::model
