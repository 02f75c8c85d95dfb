#include "src/model/heads/token_prediction.hpp"

#include <algorithm>

namespace trireme::model {

TokenPrediction::TokenPrediction(const parallel::TensorContext& context,
                                 const parallel::VocabularyPartition& vocabulary, const parallel::Parameter& table,
                                 const parallel::Parameter* bias, double soft_cap, std::int64_t chunks)
    : context_(context),
      vocabulary_rows_(vocabulary.rows()),
      chunks_(chunks),
      soft_cap_(soft_cap),
      output_(context, table, bias),
      cross_entropy_(context, vocabulary, soft_cap),
      loss_sum_(context.backend) {}

TokenPrediction::Chunk TokenPrediction::allocate_chunk(DType dtype, std::int64_t n) const {
  const DType type = accumulation_type(dtype);
  const std::int64_t rows = (n + chunks_ - 1) / chunks_;
  Arena& workspace = context_.workspace;
  return {rows,
          workspace.allocate(dtype, {rows, vocabulary_rows_}),
          {workspace.allocate(type, {rows}), workspace.allocate(type, {rows})}};
}

TokenPrediction::Chunk TokenPrediction::run_chunk(const MicroBatch& batch, const Chunk& chunk, std::int64_t begin,
                                                  ConstTensorView x, TensorView losses,
                                                  ConstTensorView gradient) const {
  const std::int64_t count = x.shape()[0];
  const Chunk part{count,
                   chunk.logits.rows(0, count),
                   {chunk.loss.maximum.flat(0, count), chunk.loss.sum_exponentials.flat(0, count)}};
  output_.multiply({}, x, Activation::none, {}, part.logits);
  cap(part.logits);
  if (batch.logits) {
    context_.backend.elementwise().convert(context_.stream(), part.logits, batch.logits.rows(begin, count));
  }
  const ConstTensorView labels = batch.labels.flat(begin, count), weights = batch.loss_weights.flat(begin, count);
  const TensorView own_losses = losses.flat(begin, count);
  if (gradient && is_one_pass(batch)) {
    cross_entropy_.forward_backward(part.logits, labels, weights, gradient.flat(begin, count), own_losses);
    return part;
  }
  cross_entropy_.forward(part.logits, labels, weights, part.loss, own_losses,
                         batch.rivals ? batch.rivals.flat(begin, count) : TensorView());
  if (gradient) cross_entropy_.backward(part.logits, labels, gradient.flat(begin, count), part.loss);
  return part;
}

TokenPrediction::Saved TokenPrediction::forward(const MicroBatch& batch, const StageMode& mode, ConstTensorView x,
                                                Arena& arena) {
  const DType type = accumulation_type(x.dtype());
  const std::int64_t n = batch.labels.numel();
  Saved saved;
  saved.input = x;
  if (in_chunks() && mode.backward) return saved;
  const ArenaScope scope(context_.workspace);
  const TensorView losses = batch.token_losses ? batch.token_losses : context_.workspace.allocate(type, {n});
  if (in_chunks()) {
    const Chunk chunk = allocate_chunk(x.dtype(), n);
    const ConstTensorView rows = context_.gather_now(x);
    for (std::int64_t begin = 0; begin < n; begin += chunk.rows) {
      run_chunk(batch, chunk, begin, rows.rows(begin, std::min(chunk.rows, n - begin)), losses);
    }
  } else {
    saved.logits = arena.allocate(x.dtype(), {n, vocabulary_rows_});
    const bool at_once = mode.backward && is_one_pass(batch);
    if (!at_once) saved.loss = {arena.allocate(type, {n}), arena.allocate(type, {n})};
    logits(x, saved.logits);
    if (batch.logits) context_.backend.elementwise().convert(context_.stream(), saved.logits, batch.logits);
    const ConstTensorView labels = batch.labels.reshape({n});
    if (at_once) {
      cross_entropy_.forward_backward(saved.logits, labels, batch.loss_weights, gradient_of_losses(batch, mode),
                                      losses);
    } else {
      cross_entropy_.forward(saved.logits, labels, batch.loss_weights, saved.loss, losses, batch.rivals);
    }
  }
  loss_sum_.add(losses);
  return saved;
}

void TokenPrediction::backward(const MicroBatch& batch, const StageMode& mode, const Saved& saved, TensorView dx) {
  const ArenaScope scope(context_.workspace);
  const std::int64_t n = batch.labels.numel();
  if (!in_chunks()) {
    if (saved.loss.maximum) {
      cross_entropy_.backward(saved.logits, batch.labels.reshape({n}), gradient_of_losses(batch, mode), saved.loss);
    }
    output_.backward_input(saved.logits, saved.input, dx, parallel::WeightGradient::now);
    return;
  }
  const ConstTensorView gradient = gradient_of_losses(batch, mode);
  const TensorView losses = context_.workspace.allocate(gradient.dtype(), {n});
  const Chunk chunk = allocate_chunk(dx.dtype(), n);
  output_.backward_in_chunks(chunk.rows, saved.input, dx, [&](std::int64_t begin, ConstTensorView x) {
    return run_chunk(batch, chunk, begin, x, losses, gradient).logits;
  });
  loss_sum_.add(losses);
}

}  // namespace trireme::model
