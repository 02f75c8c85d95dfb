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
  saved->tokens = tokens_.forward(batch, mode, shape.as_rows(x), arena);
  return saved;
}

void LanguageModelHead::predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                         const OutputHead::Saved& saved, TensorView dx) {
  tokens_.backward(batch, mode, static_cast<const Saved&>(saved).tokens, shape.as_rows(dx));
}

void LanguageModelHead::logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
  const ArenaScope scope(context_.workspace);
  tokens_.logits(shape.as_rows(normalise(shape, x, context_.workspace).output), logits);
}

namespace {

/// Rows of the residual stream that predict a token (MicroBatch::predictions): n, of which N are on this rank, n / t
/// with sequence parallelism. If no field selects them, they are all rows, and nothing is copied.
class PredictingRows {
 public:
  PredictingRows(const parallel::TensorContext& context, const LayerShape& shape, const MicroBatch& batch)
      : context_(context), shape_(shape), batch_(batch) {}

  /// N.
  std::int64_t count() const {
    if (!batch_.predictions) return shape_.local_rows();
    return batch_.predictions.numel() * shape_.s_local / shape_.s;
  }
  /// Returns these rows of x [s_local, b, h]: [N, h], from `arena` if copied. Unused predictions have rows of zeros.
  ConstTensorView take(ConstTensorView x, Arena& arena) const {
    if (!batch_.predictions) return shape_.as_rows(x);
    const TensorView y = arena.allocate(shape_.dtype, {count(), shape_.h});
    const ArenaScope scope(context_.workspace);
    const TensorView term = context_.term_of(y);
    shape_.for_each_run([&](parallel::RowChunk run) {
      const ArenaScope run_scope(context_.workspace);
      const bool first = run.index == 0;
      const TensorView found = first ? term : context_.workspace.allocate(term.dtype(), term.shape());
      lookup(batch_.predictions, run.of(shape_.as_rows(x)), first_row(run), found);
      if (!first) context_.backend.elementwise().add(context_.stream(), found, term);
    });
    if (context_.sequence_parallel) context_.sum_into(y, term).wait(context_.stream());
    return y;
  }
  /// Returns memory in which to compute the gradient of `take`'s result: dx itself if that was not copied.
  TensorView gradient(TensorView dx) const {
    if (!batch_.predictions) return shape_.as_rows(dx);
    return context_.workspace.allocate(shape_.dtype, {count(), shape_.h});
  }
  /// Overwrites dx [s_local, b, h]: row i is that of `gradient`'s memory, now filled, or zeros if i predicts nothing.
  void put(ConstTensorView dy, TensorView dx) const {
    if (!batch_.predictions) return;
    const ArenaScope scope(context_.workspace);
    const ConstTensorView gathered = context_.gather_now(dy);
    shape_.for_each_run([&](parallel::RowChunk run) {
      const TensorView rows = run.of(shape_.as_rows(dx));
      lookup(batch_.prediction_numbers.flat(first_row(run), rows.shape()[0]), gathered, 0, rows);
    });
  }

 private:
  void lookup(ConstTensorView ids, ConstTensorView table, std::int64_t first, TensorView y) const {
    context_.backend.embedding().lookup(context_.stream(), ids, table, first, y);
  }
  /// First of the rows of a chunk on this rank among those of the tensor group.
  std::int64_t first_row(parallel::RowChunk run) const {
    return shape_.first_of(run, context_.tensor_group.rank()) * shape_.b;
  }

  const parallel::TensorContext& context_;
  const LayerShape& shape_;
  const MicroBatch& batch_;
};

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

  void take_loss_sums(TensorView tokens, TensorView samples) override {
    tokens_.take_loss_sum(tokens);
    if (order_) order_->take_loss_sum(samples);
  }
  std::vector<double> take_sample_scores() override { return order_ ? order_->take_scores() : std::vector<double>(); }

 private:
  struct Saved final : OutputHead::Saved {
    ConstTensorView rows;                          // PredictingRows::take
    TensorView pre_activation, activated, normed;  // [N, h]
    NormStatistics statistics;
    TokenPrediction::Saved tokens;
    std::unique_ptr<SamplePrediction::Saved> order;
  };

  std::unique_ptr<OutputHead::Saved> predict(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override {
    auto saved = std::make_unique<Saved>();
    const PredictingRows predicting(context_, shape, batch);
    const Shape rows{predicting.count(), shape.h};
    saved->rows = predicting.take(x, arena);
    saved->pre_activation = arena.allocate(shape.dtype, rows);
    saved->activated = arena.allocate(shape.dtype, rows);
    saved->normed = arena.allocate(shape.dtype, rows);
    saved->statistics = norm_.make_statistics(predicting.count(), shape.dtype, arena);
    dense_.forward(saved->rows, activation_, saved->pre_activation, saved->activated);
    norm_.forward(saved->activated, saved->normed, saved->statistics);
    if (order_) saved->order = order_->forward(shape, batch, mode, x, arena);
    saved->tokens = tokens_.forward(batch, mode, saved->normed, arena);
    return saved;
  }

  void predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& of_forward, TensorView dx) override {
    const auto& saved = static_cast<const Saved&>(of_forward);
    const PredictingRows predicting(context_, shape, batch);
    const TensorView drows = predicting.gradient(dx);
    // Gradient of each tensor in turn.
    const TensorView gradient = context_.workspace.allocate(shape.dtype, saved.normed.shape());
    tokens_.backward(batch, mode, saved.tokens, gradient);
    norm_.backward(gradient, saved.activated, saved.statistics, {}, gradient);
    context_.backend.elementwise().activate_backward(context_.stream(), activation_, gradient, saved.pre_activation,
                                                     gradient);
    dense_.backward(gradient, saved.rows, Activation::none, {}, drows);
    predicting.put(drows, dx);
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

  void take_loss_sums(TensorView, TensorView samples) override { prediction_->take_loss_sum(samples); }
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
