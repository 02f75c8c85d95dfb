#include "src/model/stage/input_embedding.hpp"

#include "src/model/model_parameters.hpp"

namespace trireme::model {

InputEmbedding::InputEmbedding(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                               const parallel::ParameterBuffer& parameters, const ModelConfig& config)
    : context_(context),
      epsilon_(config.norm_epsilon),
      tokens_(context, vocabulary, parameters.at(token_table_name(config))) {
  if (const parallel::Parameter* table = parameters.find(position_table_name(config))) {
    positions_ = table->value;
    positions_gradient_ = table->gradient;
  }
  if (const parallel::Parameter* table = parameters.find("emb.type")) {
    types_ = table->value;
    types_gradient_ = table->gradient;
  }
  if (config.post_norm()) norm_.emplace(parameters, outer_norm_name(config));
}

InputEmbedding::Saved InputEmbedding::forward(const LayerShape& shape, const MicroBatch& batch,
                                              const DropoutPlan& dropout, TensorView x, Arena& arena) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  Saved saved;
  if (norm_) saved = {shape.allocate_residual(arena), shape.allocate_statistics(arena)};
  const TensorView sum = norm_ ? saved.sum : x;
  tokens_.forward(batch.tokens.reshape({shape.rows()}), shape.as_rows(sum));
  if (types_) {
    const ArenaScope scope(context_.workspace);
    const TensorView types = shape.as_rows(shape.allocate_residual(context_.workspace));
    backend.embedding().lookup(stream, local_types(shape, batch), types_, 0, types);
    backend.elementwise().add(stream, types, shape.as_rows(sum));
  }
  backend.embedding().add_positions(stream, positions_, shape.residual_positions(context_.tensor_group.rank()),
                                    dropout.at(0, DropoutSite::embedding), sum);
  if (norm_) backend.norm().normalise(stream, sum, norm_->weight, norm_->bias, epsilon_, x, saved.statistics);
  return saved;
}

void InputEmbedding::backward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout,
                              const Saved& saved, ConstTensorView dx) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView gradient = shape.allocate_residual(context_.workspace);
  if (norm_) {
    backend.norm().normalise_backward(stream, dx, saved.sum, norm_->weight, saved.statistics, {}, gradient,
                                      norm_->weight_gradient, norm_->bias_gradient);
    dx = gradient;
  }
  backend.embedding().add_positions_backward(stream, dx, shape.residual_positions(context_.tensor_group.rank()),
                                             dropout.at(0, DropoutSite::embedding), gradient, positions_gradient_);
  if (types_) {
    backend.embedding().lookup_backward(stream, local_types(shape, batch), shape.as_rows(gradient), 0, types_gradient_);
  }
  tokens_.backward(batch.tokens.reshape({shape.rows()}), shape.as_rows(gradient));
}

}  // namespace trireme::model
