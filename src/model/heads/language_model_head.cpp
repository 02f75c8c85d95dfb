#include "src/model/heads/language_model_head.hpp"

namespace trireme::model {

LanguageModelHead::LanguageModelHead(const parallel::TensorContext& context,
                                     const parallel::VocabularyPartition& vocabulary,
                                     const parallel::ParameterBuffer& parameters, const ModelConfig& config,
                                     std::int64_t chunks)
    : context_(context),
      norm_(context, parameters, config),
      tokens_(context, vocabulary, parameters.at(config.has_tied_head() ? token_table_name(config) : "lm_head.weight"),
              nullptr, chunks) {}

std::unique_ptr<OutputHead::Saved> LanguageModelHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                              const StageMode& mode, ConstTensorView x, Arena& arena) {
  auto saved = std::make_unique<Saved>();
  saved->mark = arena.mark();
  saved->norm = norm_.forward(shape, x, arena);
  saved->tokens = tokens_.forward(shape, batch, mode, saved->norm.output, arena);
  return saved;
}

void LanguageModelHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                 const OutputHead::Saved& of_forward, TensorView dx) {
  const auto& saved = static_cast<const Saved&>(of_forward);
  const ArenaScope scope(context_.workspace);
  const TensorView dnormed = norm_.gradient(shape, dx);
  tokens_.backward(shape, batch, mode, saved.tokens, dnormed);
  norm_.backward(saved.norm, dnormed, dx);
}

void LanguageModelHead::logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
  const ArenaScope scope(context_.workspace);
  tokens_.logits(shape, norm_.forward(shape, x, context_.workspace).output, logits);
}

}  // namespace trireme::model
