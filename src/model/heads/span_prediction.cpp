#include "src/model/heads/span_prediction.hpp"

#include "src/model/heads/row_gathering.hpp"

namespace trireme::model {

SpanPrediction::SpanPrediction(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                               std::int64_t sequence, std::int64_t b)
    : SamplePrediction(context),
      sequence_(sequence),
      b_(b),
      spans_(context, parameters, "spans"),
      ids_(context.backend, DType::int32, {2 * b * sequence}) {
  std::vector<std::int32_t> ids;
  for (std::int64_t end = 0; end < 2; ++end) {
    for (std::int64_t i = 0; i < b; ++i) {
      for (std::int64_t p = 0; p < sequence; ++p) ids.push_back(static_cast<std::int32_t>((p * b + i) * 2 + end));
    }
  }
  context.backend.copy_from_host(context.stream(), TensorView(ids.data(), ids_.view().shape()), ids_);
  context.stream().synchronize();
}

std::unique_ptr<SamplePrediction::Saved> SpanPrediction::forward(const LayerShape& shape, const MicroBatch& batch,
                                                                 const StageMode& mode, ConstTensorView x,
                                                                 Arena& arena) {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const DType type = accumulation_type(shape.dtype);
  auto result = std::make_unique<Saved>();
  Saved& saved = *result;
  saved.input = x;
  saved.logits = arena.allocate(shape.dtype, {2, b_, sequence_});
  saved.statistics = arena.allocate(type, {4, b_});
  const ArenaScope scope(context_.workspace);
  const TensorView by_position = context_.workspace.allocate(shape.dtype, {shape.local_rows(), 2});
  spans_.forward(shape.as_rows(x), Activation::none, {}, by_position);
  gather_rows(context_, shape, ids_, by_position, saved.logits.reshape({2 * b_ * sequence_, 1}));
  const bool adds = holds_first_position(shape);

  const TensorView weights = context_.workspace.allocate(type, {b_}), losses = context_.workspace.allocate(type, {b_});
  backend.elementwise().convert(stream, batch.sample_weights, weights);
  backend.elementwise().scale(stream, 0.5, weights);
  for (const std::int64_t end : {0, 1}) {
    const ConstTensorView logits = saved.logits.rows(end, 1).reshape({b_, sequence_});
    const TensorView maximum = saved.statistics.rows(2 * end, 1).reshape({b_});
    const TensorView sum = saved.statistics.rows(2 * end + 1, 1).reshape({b_});
    backend.cross_entropy().statistics(stream, logits, {0, sequence_}, end == 0 ? batch.sample_labels : batch.span_ends,
                                       maximum, sum, losses);
    backend.cross_entropy().losses(stream, maximum, sum, losses, weights, losses);
    if (adds) loss_sum_.add(losses);
  }
  if (!mode.backward && adds) {
    const TensorView scores = make_scores({2 * b_, sequence_});
    for (std::int64_t i = 0; i < 2 * b_; ++i) {  // rows of sample i / 2
      backend.elementwise().convert(stream, saved.logits.reshape({2 * b_, sequence_}).rows(i % 2 * b_ + i / 2, 1),
                                    scores.rows(i, 1));
    }
  }
  return result;
}

void SpanPrediction::backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                              const SamplePrediction::Saved& of_forward, TensorView dx) const {
  const auto& saved = static_cast<const Saved&>(of_forward);
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const TensorView gradient = context_.workspace.allocate(accumulation_type(shape.dtype), {b_});
  backend.elementwise().convert(stream,
                                model::loss_gradient(backend, batch.sample_weights, batch.sample_loss_gradient,
                                                     loss_gradient, context_.workspace),
                                gradient);
  backend.elementwise().scale(stream, 0.5, gradient);
  for (const std::int64_t end : {0, 1}) {
    backend.cross_entropy().backward(stream, {0, sequence_}, saved.statistics.rows(2 * end, 1).reshape({b_}),
                                     saved.statistics.rows(2 * end + 1, 1).reshape({b_}),
                                     end == 0 ? batch.sample_labels : batch.span_ends, gradient,
                                     saved.logits.rows(end, 1).reshape({b_, sequence_}));
  }
  const TensorView by_position = context_.workspace.allocate(shape.dtype, {shape.local_rows(), 2});
  scatter_rows(context_, shape, ids_, saved.logits.reshape({2 * b_ * sequence_, 1}), by_position);
  const TensorView dinput = shape.allocate_residual(context_.workspace);
  spans_.backward(by_position, shape.as_rows(saved.input), Activation::none, {}, shape.as_rows(dinput));
  backend.elementwise().add(stream, dinput, dx);
}

}  // namespace trireme::model
