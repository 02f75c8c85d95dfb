#include "src/model/stage/language_model_head.hpp"

namespace trireme::model {

LanguageModelHead::LanguageModelHead(const parallel::TensorContext& context,
                                     const parallel::VocabularyPartition& vocabulary,
                                     const parallel::ParameterBuffer& parameters, const ModelConfig& config)
    : context_(context),
      vocabulary_rows_(vocabulary.rows()),
      epsilon_(config.norm_epsilon),
      norm_(parameters, "ln_f"),
      output_(context, parameters.at(config.tied_output ? "wte" : "lm_head.weight"), nullptr),
      cross_entropy_(context, vocabulary),
      loss_sum_(context.backend, DType::fp64, {1}) {
  context.backend.elementwise().fill(context.stream(), 0, loss_sum_);
}

void LanguageModelHead::project(const LayerShape& shape, ConstTensorView x, TensorView normed,
                                const NormStatistics& statistics, TensorView logits) const {
  context_.backend.norm().normalise(context_.stream(), x, norm_.weight, norm_.bias, epsilon_, normed, statistics);
  output_.forward(shape.as_rows(normed), Activation::none, {}, logits);
}

LanguageModelHead::Saved LanguageModelHead::forward(const LayerShape& shape, const MicroBatch& batch, ConstTensorView x,
                                                    Arena& arena) {
  const DType type = accumulation_type(shape.dtype);
  const std::int64_t n = shape.rows();
  Saved saved;
  saved.mark = arena.mark();
  saved.input = x;
  saved.normed = shape.allocate_residual(arena);
  saved.statistics = shape.allocate_statistics(arena);
  saved.logits = arena.allocate(shape.dtype, {n, vocabulary_rows_});
  saved.loss = {arena.allocate(type, {n}), arena.allocate(type, {n})};

  const ArenaScope scope(context_.workspace);
  const TensorView losses = context_.workspace.allocate(type, {n});
  project(shape, x, saved.normed, saved.statistics, saved.logits);
  cross_entropy_.forward(saved.logits, batch.labels.reshape({n}), batch.loss_weights, saved.loss, losses);
  context_.backend.reduce().sum(context_.stream(), losses, loss_sum_);
  return saved;
}

void LanguageModelHead::backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                                 const Saved& saved, TensorView dx) const {
  const std::int64_t n = shape.rows();
  const ArenaScope scope(context_.workspace);
  const TensorView dnormed = shape.allocate_residual(context_.workspace);
  ConstTensorView gradient = batch.loss_gradient;
  if (!gradient) {
    const TensorView weighted = context_.workspace.allocate(accumulation_type(shape.dtype), {n});
    context_.backend.elementwise().convert(context_.stream(), batch.loss_weights, weighted);
    context_.backend.elementwise().scale(context_.stream(), loss_gradient, weighted);
    gradient = weighted;
  }
  cross_entropy_.backward(saved.logits, batch.labels.reshape({n}), gradient, saved.loss);
  output_.backward_input(saved.logits, shape.as_rows(saved.normed), shape.as_rows(dnormed),
                         parallel::WeightGradient::now);
  context_.backend.norm().normalise_backward(context_.stream(), dnormed, saved.input, norm_.weight, saved.statistics,
                                             {}, dx, norm_.weight_gradient, norm_.bias_gradient);
}

void LanguageModelHead::logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
  const ArenaScope scope(context_.workspace);
  const TensorView normed = shape.allocate_residual(context_.workspace);
  project(shape, x, normed, shape.allocate_statistics(context_.workspace), logits);
}

double LanguageModelHead::take_loss_sum() {
  double sum = 0;
  context_.backend.copy_to_host(context_.stream(), loss_sum_.view(), TensorView(&sum, {1}));
  context_.stream().synchronize();
  context_.backend.elementwise().fill(context_.stream(), 0, loss_sum_);
  return sum;
}

}  // namespace trireme::model
