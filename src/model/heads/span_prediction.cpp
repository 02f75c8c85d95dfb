#include "src/model/heads/span_prediction.hpp"

#include "src/model/heads/row_gathering.hpp"

namespace trireme::model {
namespace {

/// Added to the logits of padding. fp16 holds it; in every type the exponential of a logit this far below is 0.
constexpr double masked_logit = -30000;

}  // namespace

SpanPrediction::SpanPrediction(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                               std::int64_t sequence, std::int64_t b)
    : SamplePrediction(context),
      b_(b),
      dtype_(parameters.at("spans.weight").value.dtype()),
      spans_(context, parameters, "spans") {
  make_constants(sequence);
}

const SpanPrediction::Constants& SpanPrediction::make_constants(std::int64_t sequence) {
  const auto [place, is_new] = constants_.try_emplace(sequence);
  Constants& made = place->second;
  if (!is_new) return made;
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  std::vector<std::int32_t> ids;
  for (std::int64_t end = 0; end < 2; ++end) {
    for (std::int64_t i = 0; i < b_; ++i) {
      for (std::int64_t p = 0; p < sequence; ++p) ids.push_back(static_cast<std::int32_t>((p * b_ + i) * 2 + end));
    }
  }
  made.ids = Tensor(backend, DType::int32, {2 * b_ * sequence});
  made.mask = Tensor(backend, dtype_, {sequence + 1, sequence});
  backend.copy_from_host(stream, TensorView(ids.data(), made.ids.view().shape()), made.ids);
  backend.elementwise().fill(stream, masked_logit, made.mask);
  for (std::int64_t n = 1; n <= sequence; ++n) {
    backend.elementwise().fill(stream, 0, made.mask.view().flat(n * sequence, n));
  }
  stream.synchronize();
  return made;
}

std::unique_ptr<SamplePrediction::Saved> SpanPrediction::forward(const LayerShape& shape, const MicroBatch& batch,
                                                                 const StageMode& mode, ConstTensorView x,
                                                                 Arena& arena) {
  Backend& backend = context_.backend;
  Stream& stream = context_.stream();
  const DType type = accumulation_type(shape.dtype);
  auto result = std::make_unique<Saved>();
  Saved& saved = *result;
  const std::int64_t sequence = sequence_of(shape);
  const Constants& constants = make_constants(sequence);
  saved.input = x;
  saved.logits = arena.allocate(shape.dtype, {2, b_, sequence});
  saved.statistics = arena.allocate(type, {4, b_});
  const ArenaScope scope(context_.workspace);
  const TensorView by_position = context_.workspace.allocate(shape.dtype, {shape.local_rows(), 2});
  spans_.forward(shape.as_rows(x), Activation::none, {}, by_position);
  gather_rows(context_, shape, constants.ids, by_position, saved.logits.reshape({2 * b_ * sequence, 1}));
  const TensorView mask = context_.workspace.allocate(shape.dtype, {b_, sequence});
  backend.embedding().lookup(stream, batch.lengths, constants.mask, 0, mask);
  const bool adds = holds_first_position(shape);

  const TensorView weights = context_.workspace.allocate(type, {b_}), losses = context_.workspace.allocate(type, {b_});
  backend.elementwise().convert(stream, batch.sample_weights, weights);
  backend.elementwise().scale(stream, 0.5, weights);
  for (const std::int64_t end : {0, 1}) {
    const TensorView logits = saved.logits.rows(end, 1).reshape({b_, sequence});
    backend.elementwise().add(stream, mask, logits);
    const TensorView maximum = saved.statistics.rows(2 * end, 1).reshape({b_});
    const TensorView sum = saved.statistics.rows(2 * end + 1, 1).reshape({b_});
    backend.cross_entropy().statistics(stream, logits, {0, sequence}, end == 0 ? batch.sample_labels : batch.span_ends,
                                       maximum, sum, losses);
    backend.cross_entropy().losses(stream, maximum, sum, losses, weights, losses);
    if (adds) loss_sum_.add(losses);
  }
  if (!mode.backward && adds) {
    const TensorView scores = make_scores({2 * b_, sequence});
    for (std::int64_t i = 0; i < 2 * b_; ++i) {  // rows of sample i / 2
      backend.elementwise().convert(stream, saved.logits.reshape({2 * b_, sequence}).rows(i % 2 * b_ + i / 2, 1),
                                    scores.rows(i, 1));
    }
  }
  return result;
}

void SpanPrediction::backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                              const SamplePrediction::Saved& of_forward, TensorView dx) const {
  const auto& saved = static_cast<const Saved&>(of_forward);
  const std::int64_t sequence = sequence_of(shape);
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
    backend.cross_entropy().backward(stream, {0, sequence}, saved.statistics.rows(2 * end, 1).reshape({b_}),
                                     saved.statistics.rows(2 * end + 1, 1).reshape({b_}),
                                     end == 0 ? batch.sample_labels : batch.span_ends, gradient,
                                     saved.logits.rows(end, 1).reshape({b_, sequence}));
  }
  const TensorView by_position = context_.workspace.allocate(shape.dtype, {shape.local_rows(), 2});
  scatter_rows(context_, shape, constants_.at(sequence).ids, saved.logits.reshape({2 * b_ * sequence, 1}), by_position);
  const TensorView dinput = shape.allocate_residual(context_.workspace);
  spans_.backward(by_position, shape.as_rows(saved.input), Activation::none, {}, shape.as_rows(dinput));
  backend.elementwise().add(stream, dinput, dx);
}

}  // namespace trireme::model
