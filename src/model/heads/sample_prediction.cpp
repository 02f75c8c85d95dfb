#include "src/model/heads/sample_prediction.hpp"

#include <cstdint>

#include "src/model/heads/squared_error.hpp"

namespace trireme::model {
namespace {

/// Added to the logits of padding. Representable in fp16; in every type the exponential of a logit this far below is 0.
constexpr double masked_logit = -30000;

/// Calls `take(row, position, count)` for each run of consecutive positions in this rank's rows of the residual stream:
/// `count` of them, starting at row `row` and position `position`.
template <class Take>
void for_each_run(const LayerShape& shape, int tensor_rank, const Take& take) {
  shape.for_each_run([&](parallel::RowChunk run) {
    const Positions positions = shape.residual_positions(run, tensor_rank);
    const std::int64_t rows = shape.s_local / run.count;
    for (std::int64_t row = 0; row < rows;) {
      std::int64_t count = 1;
      while (row + count < rows && positions[row + count] == positions[row] + count) ++count;
      take(run.index * rows + row, positions[row], count);
      row += count;
    }
  });
}

/// Sums `data` over the ranks that share a sequence: the context group and, with sequence parallelism, the tensor
/// group. Collective.
void sum_over_sequence(const parallel::TensorContext& context, const LayerShape& shape, TensorView data) {
  Stream& stream = context.stream();
  if (shape.s_local != shape.s) context.all_reduce(data);
  if (context.context_group != nullptr) context.context_group->all_reduce(stream, data, ReduceOp::sum).wait(stream);
}

/// Gathers rows of a matrix that is split along the sequence: y[i] = x[ids[i]] on every rank. x [s_local, n] is this
/// rank's shard of [s, n]. ids [m] int32 index [s, n / columns]. Overwrites y [m, columns]. Collective over the ranks
/// that share the sequence.
void gather_rows(const parallel::TensorContext& context, const LayerShape& shape, ConstTensorView ids,
                 ConstTensorView x, TensorView y) {
  const std::int64_t columns = y.shape()[1], per_position = x.numel() / shape.s_local;
  Backend& backend = context.backend;
  Stream& stream = context.stream();
  const ArenaScope scope(context.workspace);
  const TensorView run_rows = context.workspace.allocate(y.dtype(), y.shape());
  bool first = true;
  for_each_run(shape, context.tensor_group.rank(), [&](std::int64_t row, std::int64_t position, std::int64_t count) {
    const std::int64_t each = per_position / columns;
    const ConstTensorView table = x.flat(row * per_position, count * per_position).reshape({count * each, columns});
    backend.embedding().lookup(stream, ids, table, position * each, first ? y : run_rows);
    if (!first) backend.elementwise().add(stream, run_rows, y);
    first = false;
  });
  sum_over_sequence(context, shape, y);
}

/// Computes the gradient of `gather_rows`: dx[ids[i]] = sum of dy[i], 0 for rows that were not gathered. dy [m,
/// columns] is the same on every rank; dx [s_local, n], this rank's shard, is overwritten.
void scatter_rows(const parallel::TensorContext& context, const LayerShape& shape, ConstTensorView ids,
                  ConstTensorView dy, TensorView dx) {
  const std::int64_t columns = dy.shape()[1], per_position = dx.numel() / shape.s_local;
  Backend& backend = context.backend;
  Stream& stream = context.stream();
  const ArenaScope scope(context.workspace);
  const TensorView sum = context.workspace.allocate(accumulation_type(dx.dtype()), dx.shape());
  backend.elementwise().fill(stream, 0, sum);
  for_each_run(shape, context.tensor_group.rank(), [&](std::int64_t row, std::int64_t position, std::int64_t count) {
    const std::int64_t each = per_position / columns;
    const TensorView table = sum.flat(row * per_position, count * per_position).reshape({count * each, columns});
    backend.embedding().lookup_backward(stream, ids, dy, position * each, table);
  });
  backend.elementwise().convert(stream, sum, dx);
}

}  // namespace

std::vector<double> SamplePrediction::take_scores() {
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
  if (!pooler_) {
    const TensorView last = arena.allocate(shape.dtype, {shape.b, shape.h});
    gather_rows(context_, shape, batch.last_rows, x, last);
    saved.row = last;
  }
  if (!holds_first_position(shape)) return result;
  if (pooler_) {
    saved.row = x.flat(0, shape.b * shape.h).reshape({shape.b, shape.h});
    saved.pre_activation = arena.allocate(shape.dtype, {shape.b, shape.h});
    saved.pooled = arena.allocate(shape.dtype, {shape.b, shape.h});
    pooler_->forward(saved.row, Activation::tanh, saved.pre_activation, saved.pooled);
  }
  saved.logits = arena.allocate(shape.dtype, {shape.b / choices_, classes().classes});
  classifier_.forward(pooler_ ? ConstTensorView(saved.pooled) : saved.row, Activation::none, {},
                      saved.logits.reshape({shape.b, classifier_.outputs()}));
  const ArenaScope scope(context_.workspace);
  loss_sum_.add(losses_of(batch, saved, arena));
  if (!mode.backward) {
    context_.backend.elementwise().convert(context_.stream(), saved.logits, make_scores(saved.logits.shape()));
  }
  return result;
}

ConstTensorView SampleClassification::losses_of(const MicroBatch& batch, Saved& saved, Arena& arena) const {
  if (is_regression()) {
    const SquaredError error(context_.backend);
    saved.differences = error.differences(saved.logits, batch.sample_labels, arena);
    return error.losses(saved.differences, batch.sample_weights, context_.workspace);
  }
  Stream& stream = context_.stream();
  CrossEntropyKernels& kernels = context_.backend.cross_entropy();
  const DType type = accumulation_type(saved.logits.dtype());
  const Shape labels{saved.logits.shape()[0]};
  saved.maximum = arena.allocate(type, labels);
  saved.sum_exponentials = arena.allocate(type, labels);
  const TensorView losses = context_.workspace.allocate(type, labels);
  kernels.statistics(stream, saved.logits, classes(), batch.sample_labels, saved.maximum, saved.sum_exponentials,
                     losses);
  kernels.losses(stream, saved.maximum, saved.sum_exponentials, losses, batch.sample_weights, losses);
  return losses;
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
  const ConstTensorView gradient = model::loss_gradient(backend, batch.sample_weights, batch.sample_loss_gradient,
                                                        loss_gradient, context_.workspace);
  if (is_regression()) {
    SquaredError(backend).backward(saved.differences, gradient, saved.logits);
  } else {
    backend.cross_entropy().backward(context_.stream(), classes(), saved.maximum, saved.sum_exponentials,
                                     batch.sample_labels, gradient, 0, saved.logits);
  }
  const TensorView dlogits = saved.logits.reshape({shape.b, classifier_.outputs()});
  if (!pooler_) return classifier_.backward(dlogits, saved.row, Activation::none, {}, drow);
  const TensorView dpooler = context_.workspace.allocate(shape.dtype, {shape.b, shape.h});
  classifier_.backward(dlogits, saved.pooled, Activation::tanh, saved.pre_activation, dpooler);
  pooler_->backward(dpooler, saved.row, Activation::none, {}, drow);
}

SpanPrediction::SpanPrediction(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                               std::int64_t sequence, std::int64_t b)
    : SamplePrediction(context),
      b_(b),
      dtype_(parameters.at("spans.weight").value.dtype()),
      spans_(context, parameters, "spans") {
  constants_for(sequence);  // allocates before training
}

const SpanPrediction::Constants& SpanPrediction::constants_for(std::int64_t sequence) {
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
  const Constants& constants = constants_for(sequence);
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
                                     end == 0 ? batch.sample_labels : batch.span_ends, gradient, 0,
                                     saved.logits.rows(end, 1).reshape({b_, sequence}));
  }
  const TensorView by_position = context_.workspace.allocate(shape.dtype, {shape.local_rows(), 2});
  scatter_rows(context_, shape, constants_.at(sequence).ids, saved.logits.reshape({2 * b_ * sequence, 1}), by_position);
  const TensorView dinput = shape.allocate_residual(context_.workspace);
  spans_.backward(by_position, shape.as_rows(saved.input), Activation::none, {}, shape.as_rows(dinput));
  backend.elementwise().add(stream, dinput, dx);
}

}  // namespace trireme::model
