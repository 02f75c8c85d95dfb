#include "src/model/heads/token_prediction.hpp"

namespace trireme::model {

TokenPrediction::TokenPrediction(const parallel::TensorContext& context,
                                 const parallel::VocabularyPartition& vocabulary, const parallel::Parameter& table,
                                 const parallel::Parameter* bias)
    : context_(context),
      vocabulary_rows_(vocabulary.rows()),
      output_(context, table, bias),
      cross_entropy_(context, vocabulary),
      loss_sum_(context.backend) {}

TokenPrediction::Saved TokenPrediction::forward(const LayerShape& shape, const MicroBatch& batch, ConstTensorView x,
                                                Arena& arena) {
  const DType type = accumulation_type(shape.dtype);
  const std::int64_t n = shape.rows();
  Saved saved;
  saved.input = x;
  saved.logits = arena.allocate(shape.dtype, {n, vocabulary_rows_});
  saved.loss = {arena.allocate(type, {n}), arena.allocate(type, {n})};

  const ArenaScope scope(context_.workspace);
  const TensorView losses = batch.token_losses ? batch.token_losses : context_.workspace.allocate(type, {n});
  logits(shape, x, saved.logits);
  if (batch.logits) context_.backend.elementwise().convert(context_.stream(), saved.logits, batch.logits);
  cross_entropy_.forward(saved.logits, batch.labels.reshape({n}), batch.loss_weights, saved.loss, losses, batch.rivals);
  loss_sum_.add(losses);
  return saved;
}

void TokenPrediction::backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                               const Saved& saved, TensorView dx) const {
  const ArenaScope scope(context_.workspace);
  const ConstTensorView gradient = model::loss_gradient(context_.backend, batch.loss_weights, batch.loss_gradient,
                                                        loss_gradient, context_.workspace);
  cross_entropy_.backward(saved.logits, batch.labels.reshape({shape.rows()}), gradient, saved.loss);
  output_.backward_input(saved.logits, shape.as_rows(saved.input), shape.as_rows(dx), parallel::WeightGradient::now);
}

}  // namespace trireme::model
