#include "src/model/heads/sample_classification.hpp"

#include "src/model/heads/row_gathering.hpp"

namespace trireme::model {

SampleClassification::SampleClassification(const parallel::TensorContext& context,
                                           const parallel::ParameterBuffer& parameters, const std::string& classifier,
                                           SampleSummary summary, std::int64_t choices)
    : context_(context), classifier_(context, parameters, classifier), choices_(choices), loss_sum_(context.backend) {
  if (summary == SampleSummary::pooled_first) pooler_.emplace(context, parameters, "pooler");
}

SampleClassification::Saved SampleClassification::forward(const LayerShape& shape, const MicroBatch& batch,
                                                          const StageMode& mode, ConstTensorView x, Arena& arena) {
  Saved saved;
  if (reads_last()) {
    const TensorView last = arena.allocate(shape.dtype, {shape.b, shape.h});
    gather_rows(context_, shape, batch.last_rows, x, last);
    saved.row = last;
  }
  if (!holds_first_position(shape)) return saved;
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
  if (!mode.backward) {
    scores_.emplace_back(backend, DType::fp64, saved.logits.shape());
    backend.elementwise().convert(stream, saved.logits, scores_.back());
  }
  return saved;
}

void SampleClassification::backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                                    const Saved& saved, TensorView dx) const {
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
  if (shape.s_local != shape.s) context_.all_reduce(drow);
  if (context_.context_group != nullptr) {
    context_.context_group->all_reduce(stream, drow, ReduceOp::sum).wait(stream);
  }
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

std::vector<double> SampleClassification::take_scores() {
  std::vector<double> result;
  for (const Tensor& scores : scores_) {
    const std::size_t before = result.size();
    result.resize(before + static_cast<std::size_t>(scores.view().numel()));
    context_.backend.copy_to_host(context_.stream(), scores.view(),
                                  TensorView(result.data() + before, scores.view().shape()));
    context_.stream().synchronize();
  }
  scores_.clear();
  return result;
}

}  // namespace trireme::model
