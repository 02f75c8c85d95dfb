#include "src/model/heads/output_head.hpp"

#include "src/model/heads/sample_prediction.hpp"

namespace trireme::model {

OutputHead::OutputHead(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                       const ModelConfig& config)
    : context_(context) {
  if (!config.post_norm()) norm_.emplace(context, parameters, outer_norm_name(config), config);
}

OutputHead::Normed OutputHead::normalise(const LayerShape& shape, ConstTensorView x, Arena& arena) const {
  if (!norm_) return {x, x, {}};
  const TensorView output = shape.allocate_residual(arena);
  const NormStatistics statistics = norm_->make_statistics(shape.local_rows(), shape.dtype, arena);
  norm_->forward(x, output, statistics);
  return {x, output, statistics};
}

std::unique_ptr<OutputHead::Saved> OutputHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                       const StageMode& mode, ConstTensorView x, Arena& arena) {
  const Arena::Mark mark = arena.mark();
  const Normed norm = normalise(shape, x, arena);
  auto saved = predict(shape, batch, mode, norm.output, arena);
  saved->mark = mark;
  saved->norm = norm;
  return saved;
}

void OutputHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const Saved& saved,
                          ConstTensorView dnormed, TensorView dx) {
  const ArenaScope scope(context_.workspace);
  const TensorView sum = norm_ ? shape.allocate_residual(context_.workspace) : dx;
  predict_backward(shape, batch, mode, saved, sum);
  if (dnormed) context_.backend.elementwise().add(context_.stream(), dnormed, sum);
  if (norm_) norm_->backward(sum, saved.norm.input, saved.norm.statistics, {}, dx);
}

LanguageModelHead::LanguageModelHead(const parallel::TensorContext& context,
                                     const parallel::VocabularyPartition& vocabulary,
                                     const parallel::ParameterBuffer& parameters, const ModelConfig& config,
                                     std::int64_t loss_chunks)
    : OutputHead(context, parameters, config),
      tokens_(context, vocabulary, parameters.at(config.has_tied_head() ? token_table_name(config) : "lm_head.weight"),
              nullptr, config.logit_soft_cap, loss_chunks) {}

std::unique_ptr<OutputHead::Saved> LanguageModelHead::predict(const LayerShape& shape, const MicroBatch& batch,
                                                              const StageMode& mode, ConstTensorView x, Arena& arena) {
  auto saved = std::make_unique<Saved>();
  saved->tokens = tokens_.forward(shape, batch, mode, x, arena);
  return saved;
}

void LanguageModelHead::predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                         const OutputHead::Saved& saved, TensorView dx) {
  tokens_.backward(shape, batch, mode, static_cast<const Saved&>(saved).tokens, dx);
}

void LanguageModelHead::logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
  const ArenaScope scope(context_.workspace);
  tokens_.logits(shape, normalise(shape, x, context_.workspace).output, logits);
}

namespace {

/// Heads of BERT (Devlin et al. 2019, arXiv:1810.04805): the masked tokens, by norm(gelu(x W^T + b)) table^T + c, and
/// with a binary head the order of the two segments, by the first position.
class BertHead final : public OutputHead {
 public:
  /// Takes the parameters mlm.*, the token table, and with a binary head pooler.* and sop.*.
  BertHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
           const parallel::ParameterBuffer& parameters, const ModelConfig& config, std::int64_t loss_chunks)
      : OutputHead(context, parameters, config),
        activation_(config.activation),
        dense_(context, parameters, "mlm.dense"),
        norm_(context, parameters, "mlm.ln", config),
        tokens_(context, vocabulary, parameters.at(token_table_name(config)), &parameters.at("mlm.out.bias"),
                config.logit_soft_cap, loss_chunks) {
    if (config.binary_head) order_.emplace(context, parameters, "sop");
  }

  LossSums take_loss_sums() override {
    return {.tokens = tokens_.take_loss_sum(), .samples = order_ ? order_->take_loss_sum() : 0};
  }
  std::vector<double> take_sample_scores() override { return order_ ? order_->take_scores() : std::vector<double>(); }

 private:
  struct Saved final : OutputHead::Saved {
    TensorView pre_activation, activated, normed;  // [s_local, b, h]
    NormStatistics statistics;
    TokenPrediction::Saved tokens;
    std::unique_ptr<SamplePrediction::Saved> order;
  };

  std::unique_ptr<OutputHead::Saved> predict(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override {
    auto saved = std::make_unique<Saved>();
    saved->pre_activation = shape.allocate_residual(arena);
    saved->activated = shape.allocate_residual(arena);
    saved->normed = shape.allocate_residual(arena);
    saved->statistics = norm_.make_statistics(shape.local_rows(), shape.dtype, arena);
    dense_.forward(shape.as_rows(x), activation_, shape.as_rows(saved->pre_activation),
                   shape.as_rows(saved->activated));
    norm_.forward(saved->activated, saved->normed, saved->statistics);
    if (order_) saved->order = order_->forward(shape, batch, mode, x, arena);
    saved->tokens = tokens_.forward(shape, batch, mode, saved->normed, arena);
    return saved;
  }

  void predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& of_forward, TensorView dx) override {
    const auto& saved = static_cast<const Saved&>(of_forward);
    const TensorView gradient = shape.allocate_residual(context_.workspace);  // gradient of each tensor in turn
    tokens_.backward(shape, batch, mode, saved.tokens, gradient);
    norm_.backward(gradient, saved.activated, saved.statistics, {}, gradient);
    context_.backend.elementwise().activate_backward(context_.stream(), activation_, gradient, saved.pre_activation,
                                                     gradient);
    dense_.backward(shape.as_rows(gradient), shape.as_rows(of_forward.norm.output), Activation::none, {},
                    shape.as_rows(dx));
    if (order_) order_->backward(shape, batch, mode.sample_loss_gradient, *saved.order, dx);
  }

  Activation activation_;
  Dense dense_;
  Norm norm_;
  TokenPrediction tokens_;
  std::optional<SampleClassification> order_;
};

/// Head of a fine-tuning task: classes, choices or spans (ModelOutput).
class TaskHead final : public OutputHead {
 public:
  TaskHead(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
           const ModelConfig& config, std::int64_t sequence, std::int64_t b)
      : OutputHead(context, parameters, config) {
    if (config.output == ModelOutput::spans) {
      prediction_ = std::make_unique<SpanPrediction>(context, parameters, sequence, b);
      return;
    }
    const SampleSummary summary = config.has_task_pooler() ? SampleSummary::pooled_first : SampleSummary::last;
    prediction_ = std::make_unique<SampleClassification>(context, parameters, task_head_name(config), summary,
                                                         config.samples_per_label());
  }

  LossSums take_loss_sums() override { return {.samples = prediction_->take_loss_sum()}; }
  std::vector<double> take_sample_scores() override { return prediction_->take_scores(); }

 private:
  struct Saved final : OutputHead::Saved {
    std::unique_ptr<SamplePrediction::Saved> prediction;
  };

  std::unique_ptr<OutputHead::Saved> predict(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override {
    auto saved = std::make_unique<Saved>();
    saved->prediction = prediction_->forward(shape, batch, mode, x, arena);
    return saved;
  }

  void predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& saved, TensorView dx) override {
    context_.backend.elementwise().fill(context_.stream(), 0, dx);
    prediction_->backward(shape, batch, mode.sample_loss_gradient, *static_cast<const Saved&>(saved).prediction, dx);
  }

  std::unique_ptr<SamplePrediction> prediction_;
};

}  // namespace

std::unique_ptr<OutputHead> OutputHead::make(const parallel::TensorContext& context,
                                             const parallel::VocabularyPartition& vocabulary,
                                             const parallel::ParameterBuffer& parameters, const ModelConfig& config,
                                             std::int64_t sequence, std::int64_t b, std::int64_t loss_chunks) {
  if (!config.predicts_tokens()) return std::make_unique<TaskHead>(context, parameters, config, sequence, b);
  if (config.is_bert()) return std::make_unique<BertHead>(context, vocabulary, parameters, config, loss_chunks);
  return std::make_unique<LanguageModelHead>(context, vocabulary, parameters, config, loss_chunks);
}

}  // namespace trireme::model
