#include "src/model/stage/input_embedding.hpp"

#include <cmath>

namespace trireme::model {
namespace {

/// sqrt(h), rounded to the training type as in transformers.
double embedding_scale(std::int64_t h, DType dtype) {
  return dispatch_float(dtype, [&]<class T>() -> double {
    using A = Accumulation<T>;
    return static_cast<A>(static_cast<T>(static_cast<A>(std::sqrt(static_cast<double>(h)))));
  });
}

}  // namespace

InputEmbedding::InputEmbedding(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                               const parallel::ParameterBuffer& parameters, const ModelConfig& config, int layer)
    : context_(context),
      layer_(layer),
      factor_(config.scaled_embedding
                  ? embedding_scale(config.hidden, parameters.at(token_table_name(config)).value.dtype())
                  : 1),
      normalises_tokens_(config.embedding_norm),
      tokens_(context, vocabulary, parameters.at(token_table_name(config))),
      positions_{value_of(parameters.find(position_table_name(config))),
                 gradient_of(parameters.find(position_table_name(config)))},
      types_{value_of(parameters.find("emb.type")), gradient_of(parameters.find("emb.type"))} {
  if (config.post_norm() || config.embedding_norm) norm_.emplace(context, parameters, embedding_norm_name(), config);
}

InputEmbedding::Saved InputEmbedding::forward(const LayerShape& shape, const MicroBatch& batch,
                                              const DropoutPlan& dropout, TensorView x, Arena& arena) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  Saved saved;
  if (norm_) {
    saved = {shape.allocate_residual(arena), norm_->make_statistics(shape.local_rows(), shape.dtype, arena)};
  }
  TensorView sum = norm_ ? saved.sum : x;
  tokens_.forward(batch.tokens.reshape({shape.rows()}), shape.as_rows(sum));
  if (factor_ != 1) backend.elementwise().scale(stream, factor_, sum);
  if (normalises_tokens_) {
    norm_->forward(sum, x, saved.statistics);
    sum = x;
  }
  shape.for_each_run([&](parallel::RowChunk run) {
    for_selected(shape, batch, run, [&](const Table& table, ConstTensorView ids) {
      const ArenaScope scope(context_.workspace);
      const TensorView rows = context_.workspace.allocate(shape.dtype, {ids.numel(), shape.h});
      backend.embedding().lookup(stream, ids, table.values, 0, rows);
      backend.elementwise().add(stream, rows, run.of(shape.as_rows(sum)));
    });
    const Dropout of_run = dropout_of(shape, dropout, run);
    backend.embedding().add_positions(stream, by_sequence(batch).values, of_run.positions, of_run, run.of(sum));
  });
  if (norm_ && !normalises_tokens_) norm_->forward(sum, x, saved.statistics);
  return saved;
}

void InputEmbedding::backward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout,
                              const Saved& saved, ConstTensorView dx) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView gradient = shape.allocate_residual(context_.workspace);
  if (norm_ && !normalises_tokens_) {
    norm_->backward(dx, saved.sum, saved.statistics, {}, gradient);
    dx = gradient;
  }
  shape.for_each_run([&](parallel::RowChunk run) {
    const Dropout of_run = dropout_of(shape, dropout, run);
    backend.embedding().add_positions_backward(stream, run.of(dx), of_run.positions, of_run, run.of(gradient),
                                               by_sequence(batch).gradient);
    for_selected(shape, batch, run, [&](const Table& table, ConstTensorView ids) {
      backend.embedding().lookup_backward(stream, ids, run.of(shape.as_rows(gradient)), 0, table.gradient);
    });
  });
  if (normalises_tokens_) norm_->backward(gradient, saved.sum, saved.statistics, {}, gradient);
  if (factor_ != 1) backend.elementwise().scale(stream, factor_, gradient);
  tokens_.backward(batch.tokens.reshape({shape.rows()}), shape.as_rows(gradient));
}

}  // namespace trireme::model
