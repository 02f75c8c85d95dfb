#include "src/model/heads/sample_classification.hpp"

#include "src/model/heads/row_gathering.hpp"

namespace trireme::model {

SampleClassification::SampleClassification(const parallel::TensorContext& context,
                                           const parallel::ParameterBuffer& parameters, const std::string& classifier,
                                           SampleSummary summary, std::int64_t choices)
    : SamplePrediction(context), classifier_(context, parameters, classifier), choices_(choices) {
  if (summary == SampleSummary::pooled_first) pooler_.emplace(context, parameters, "pooler");
}

std::unique_ptr<SamplePrediction::Saved> SampleClassification::forward(const LayerShape& shape, const MicroBatch& batch,
                                                                       const StageMode& mode, ConstTensorView x,
                                                                       Arena& arena) {
  auto result = std::make_unique<Saved>();
  Saved& saved = *result;
  if (reads_last()) {
    const TensorView last = arena.allocate(shape.dtype, {shape.b, shape.h});
    gather_rows(context_, shape, batch.last_rows, x, last);
    saved.row = last;
  }
  if (!holds_first_position(shape)) return result;
  const DType type = accumulation_type(shape.dtype);
  const std::int64_t labels = shape.b / choices_;
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  if (pooler_) {
    saved.row = x.flat(0, shape.b * shape.h).reshape({shape.b, shape.h});
    saved.pre_activation = arena.allocate(shape.dtype, {shape.b, shape.h});
    saved.pooled = arena.allocate(shape.dtype, {shape.b, shape.h});
    pooler_->forward(saved.row, Activation::tanh, saved.pre_activation, saved.pooled);
  }
  saved.logits = arena.allocate(shape.dtype, {labels, classes().classes});
  saved.maximum = arena.allocate(type, {labels});
  saved.sum_exponentials = arena.allocate(type, {labels});

  classifier_.forward(pooler_ ? ConstTensorView(saved.pooled) : saved.row, Activation::none, {},
                      saved.logits.reshape({shape.b, classifier_.outputs()}));
  const ArenaScope scope(context_.workspace);
  const TensorView losses = context_.workspace.allocate(type, {labels});
  backend.cross_entropy().statistics(stream, saved.logits, classes(), batch.sample_labels, saved.maximum,
                                     saved.sum_exponentials, losses);
  backend.cross_entropy().losses(stream, saved.maximum, saved.sum_exponentials, losses, batch.sample_weights, losses);
  loss_sum_.add(losses);
  if (!mode.backward) backend.elementwise().convert(stream, saved.logits, make_scores(saved.logits.shape()));
  return result;
}

void SampleClassification::backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                                    const SamplePrediction::Saved& of_forward, TensorView dx) const {
  const auto& saved = static_cast<const Saved&>(of_forward);
  if (!saved.row) return;
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView drow = context_.workspace.allocate(shape.dtype, {shape.b, shape.h});
  if (holds_first_position(shape)) {
    backward_row(shape, batch, loss_gradient, saved, drow);
  } else {
    backend.elementwise().fill(stream, 0, drow);
  }
  if (pooler_) {
    backend.elementwise().add(stream, drow.reshape({shape.b * shape.h}), dx.flat(0, shape.b * shape.h));
    return;
  }
  sum_over_sequence(context_, shape, drow);
  const TensorView scattered = shape.allocate_residual(context_.workspace);
  scatter_rows(context_, shape, batch.last_rows, drow, scattered);
  backend.elementwise().add(stream, scattered, dx);
}

void SampleClassification::backward_row(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                                        const Saved& saved, TensorView drow) const {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ConstTensorView gradient = model::loss_gradient(backend, batch.sample_weights, batch.sample_loss_gradient,
                                                        loss_gradient, context_.workspace);
  backend.cross_entropy().backward(stream, classes(), saved.maximum, saved.sum_exponentials, batch.sample_labels,
                                   gradient, saved.logits);
  const TensorView dlogits = saved.logits.reshape({shape.b, classifier_.outputs()});
  if (!pooler_) return classifier_.backward(dlogits, saved.row, Activation::none, {}, drow);
  const TensorView dpooler = context_.workspace.allocate(shape.dtype, {shape.b, shape.h});
  classifier_.backward(dlogits, saved.pooled, Activation::tanh, saved.pre_activation, dpooler);
  pooler_->backward(dpooler, saved.row, Activation::none, {}, drow);
}

}  // namespace trireme::model
