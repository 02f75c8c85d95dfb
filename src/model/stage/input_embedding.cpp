#include "src/model/stage/input_embedding.hpp"

namespace trireme::model {

InputEmbedding::InputEmbedding(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                               const parallel::ParameterBuffer& parameters)
    : context_(context), tokens_(context, vocabulary, parameters.at("wte")) {
  if (const parallel::Parameter* wpe = parameters.find("wpe")) {
    positions_ = wpe->value;
    positions_gradient_ = wpe->gradient;
  }
}

void InputEmbedding::forward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout,
                             TensorView x) const {
  tokens_.forward(batch.tokens.reshape({shape.rows()}), shape.as_rows(x));
  context_.backend.embedding().add_positions(context_.stream(), positions_,
                                             shape.residual_positions(context_.tensor_group.rank()),
                                             dropout.at(0, DropoutSite::embedding), x);
}

void InputEmbedding::backward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout,
                              ConstTensorView dx) const {
  const ArenaScope scope(context_.workspace);
  const TensorView masked = shape.allocate_residual(context_.workspace);
  context_.backend.embedding().add_positions_backward(
      context_.stream(), dx, shape.residual_positions(context_.tensor_group.rank()),
      dropout.at(0, DropoutSite::embedding), masked, positions_gradient_);
  tokens_.backward(batch.tokens.reshape({shape.rows()}), shape.as_rows(masked));
}

}  // namespace trireme::model
