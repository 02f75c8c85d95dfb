#include "src/model/stage/sample_classification.hpp"

namespace trireme::model {

SampleClassification::SampleClassification(const parallel::TensorContext& context,
                                           const parallel::ParameterBuffer& parameters, const std::string& classifier)
    : context_(context),
      pooler_(context, parameters, "pooler"),
      classifier_(context, parameters, classifier),
      loss_sum_(context.backend) {}

SampleClassification::Saved SampleClassification::forward(const LayerShape& shape, const MicroBatch& batch,
                                                          const StageMode& mode, ConstTensorView x, Arena& arena) {
  Saved saved;
  if (!holds_first_position(shape)) return saved;
  const DType type = accumulation_type(shape.dtype);
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  saved.first = x.flat(0, shape.b * shape.h).reshape({shape.b, shape.h});
  saved.pre_activation = arena.allocate(shape.dtype, {shape.b, shape.h});
  saved.pooled = arena.allocate(shape.dtype, {shape.b, shape.h});
  saved.logits = arena.allocate(shape.dtype, {shape.b, classes().classes});
  saved.maximum = arena.allocate(type, {shape.b});
  saved.sum_exponentials = arena.allocate(type, {shape.b});

  pooler_.forward(saved.first, Activation::tanh, saved.pre_activation, saved.pooled);
  classifier_.forward(saved.pooled, Activation::none, {}, saved.logits);
  const ArenaScope scope(context_.workspace);
  const TensorView losses = context_.workspace.allocate(type, {shape.b});
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
  if (!saved.first) return;
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView dpooler = context_.workspace.allocate(shape.dtype, {shape.b, shape.h});
  const TensorView dfirst = context_.workspace.allocate(shape.dtype, {shape.b, shape.h});
  const ConstTensorView gradient = model::loss_gradient(backend, batch.sample_weights, batch.sample_loss_gradient,
                                                        loss_gradient, context_.workspace);
  backend.cross_entropy().backward(stream, classes(), saved.maximum, saved.sum_exponentials, batch.sample_labels,
                                   gradient, saved.logits);
  classifier_.backward(saved.logits, saved.pooled, Activation::tanh, saved.pre_activation, dpooler);
  pooler_.backward(dpooler, saved.first, Activation::none, {}, dfirst);
  backend.elementwise().add(stream, dfirst.reshape({shape.b * shape.h}), dx.flat(0, shape.b * shape.h));
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
