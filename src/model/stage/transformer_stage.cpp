#include "src/model/stage/transformer_stage.hpp"

#include <algorithm>
#include <iterator>

#include "src/backend/host_numbers.hpp"

namespace trireme::model {
namespace {

LayerShape longest_shape(const parallel::TensorContext& context, const ModelConfig& config, const StageShard& shard,
                         const parallel::SequenceShard& sequence, std::int64_t micro_batch_size, DType dtype) {
  LayerShape shape = LayerShape::of(config, sequence.rows, micro_batch_size, shard.tensor_size,
                                    context.sequence_parallel, dtype, shard.expert_tensor_size);
  shape.positions = sequence.positions;
  shape.row_chunks = context.row_chunks;
  TRIREME_CHECK(shape.s_local % shape.row_chunks == 0, ConfigError,
                "<tp_comm_overlap_chunks> {} does not divide the {} positions of a tensor rank; choose a divisor",
                shape.row_chunks, shape.s_local);
  return shape;
}

}  // namespace

using parallel::WeightGradient;

TransformerStage::TransformerStage(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                                   const ModelConfig& config, const StageShard& shard,
                                   const parallel::VocabularyPartition& vocabulary,
                                   const parallel::SequenceShard& sequence, std::int64_t micro_batch_size, DType dtype,
                                   const Recomputation& recomputation, std::int64_t loss_chunks,
                                   parallel::ParameterHooks& hooks)
    : context_(context),
      hooks_(hooks),
      shard_(shard),
      has_table_in_head_(config.has_table_in_head()),
      has_varying_rows_(config.experts.count > 0 && !context.pad_experts),
      sequence_(sequence),
      shape_(longest_shape(context, config, shard, sequence, micro_batch_size, dtype)),
      activations_(context.workspace.allocator(), context.workspace.growth(), context.backend),
      layers_(context, parameters, config, shard, recomputation, hooks, first_layer_unit(), activations_),
      ahead_depths_(std::max(config.ahead.depths, 1)),
      loss_sums_(context.backend, DType::fp64, {LossSums::kinds}) {
  if (shard.first_stage) embedding_.emplace(context, vocabulary, parameters, config);
  if (shard.last_stage) {
    head_ = OutputHead::make(context, vocabulary, parameters, config, sequence.sequence, micro_batch_size, loss_chunks);
    if (config.predicts_ahead()) {
      ahead_.emplace(context, vocabulary, parameters, config, shard, recomputation, loss_chunks, activations_);
    }
  }
}

LayerShape TransformerStage::shape_of(int micro_batch) const {
  const MicroBatch& fields = batch(micro_batch);
  const std::int64_t rows = fields.tokens.shape()[0], shards = shape_.s / shape_.s_local;
  TRIREME_CHECK(rows % shards == 0, ShapeError, "{} rows do not split into {} shards", rows, shards);
  LayerShape shape = shape_;
  shape.s = rows;
  shape.s_local = rows / shards;
  shape.positions = sequence_.of_length(rows * (sequence_.sequence / sequence_.rows)).positions;
  const auto ids_of = [](ConstTensorView field) { return field ? field.as<std::int32_t>() : nullptr; };
  shape.lengths = ids_of(fields.lengths);
  shape.first_visible = ids_of(fields.first_visible);
  shape.position_ids = ids_of(fields.positions);
  shape.limits_experts = mode_.limits_experts;
  return shape;
}

Shape TransformerStage::boundary_shape(int micro_batch) const {
  const LayerShape shape = shape_of(micro_batch);
  return {shape.s_local, shape.b, shape.h};
}

void TransformerStage::begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) {
  micro_batches_ = std::move(micro_batches);
  mode_ = mode;
  saved_.clear();
  activations_.close_all();
}

void TransformerStage::take_loss_sums(TensorView sums) {
  context_.backend.elementwise().fill(context_.stream(), 0, sums);
  if (head_) head_->take_loss_sums(sums.flat(0, 1), sums.flat(1, 1));
  if (ahead_) ahead_->take_loss_sum(sums.flat(2, 1));
}

LossSums TransformerStage::loss_sums_of(std::span<const double> sums) const {
  return {sums[0], sums[1], sums[2] / ahead_depths_};
}

LossSums TransformerStage::take_loss_sums() {
  take_loss_sums(loss_sums_);
  return loss_sums_of(read_numbers(context_.backend, context_.stream(), loss_sums_));
}

std::vector<double> TransformerStage::take_sample_scores() {
  return head_ ? head_->take_sample_scores() : std::vector<double>();
}

std::vector<ExpertLoad> TransformerStage::take_expert_loads() const {
  std::vector<ExpertLoad> loads = layers_.take_expert_loads();
  if (ahead_) std::ranges::move(ahead_->layers().take_expert_loads(), std::back_inserter(loads));
  return loads;
}

void TransformerStage::set_router_biases(std::span<const double> biases) const {
  layers_.set_router_biases(biases);
  if (ahead_) ahead_->layers().set_router_biases(biases);
}

void TransformerStage::set_balance_loads(const std::map<int, std::vector<double>>& loads) const {
  layers_.set_balance_loads(loads);
  if (ahead_) ahead_->layers().set_balance_loads(loads);
}

void TransformerStage::release(int chunk, int micro_batch) {
  saved_.erase({chunk, micro_batch});
  activations_.close(chunk, micro_batch);
}

DropoutPlan TransformerStage::dropout(int micro_batch) const {
  DropoutPlan plan;
  plan.hidden = mode_.hidden_dropout;
  plan.attention = mode_.attention_dropout;
  plan.router_jitter = mode_.router_jitter;
  plan.seed = mode_.seed;
  if (plan.hidden != 0 || plan.attention != 0 || plan.router_jitter != 0) {
    plan.samples = batch(micro_batch).samples.as<std::int64_t>();
  }
  return plan;
}

LayerStack::Pass TransformerStage::pass(int chunk, int micro_batch, const LayerShape& shape, ResidualPair& streams) {
  return {shape,
          chunk,
          mode_.backward,
          is_last_micro_batch(micro_batch),
          dropout(micro_batch),
          activations_.arena(chunk, micro_batch),
          activations_.host_arena(chunk, micro_batch),
          streams,
          mode_.backward ? probe_ : nullptr,
          mode_.mean_gradient};
}

void TransformerStage::forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) {
  const LayerShape shape = shape_of(micro_batch);
  Arena& arena = activations_.open(chunk, micro_batch);
  Saved& state = saved_[{chunk, micro_batch}];
  const bool last = is_last(chunk);
  const ArenaScope scope(context_.workspace);
  ResidualPair streams(shape, context_.workspace);
  const LayerStack::Pass pass = this->pass(chunk, micro_batch, shape, streams);
  if (is_first(chunk)) {
    const TensorView x = layers_.layers_of(chunk) == 0 && !last ? output : layers_.make_input(pass);
    hooks_.before_forward(embedding_unit);
    // Keeps nothing if no backward follows.
    Arena& kept = mode_.backward ? arena : context_.workspace;
    state.embedding = embedding_->forward(shape, batch(micro_batch), pass.dropout, x, kept);
    if (pass.probe != nullptr) pass.probe->after_layer(-1, x);
    input = x;
  }
  const ConstTensorView result = layers_.forward(pass, input, last ? TensorView() : output, state.layers);
  if (pass.probe != nullptr) pass.probe->after_forward(chunk, result);
  if (last) {
    hooks_.before_forward(head_unit());
    state.head = head_->forward(shape, batch(micro_batch), mode_, result, arena);
    // Further tokens are predicted only in training.
    if (ahead_ && mode_.backward) {
      state.ahead = ahead_->forward(pass, batch(micro_batch), mode_, state.head->norm.output);
    }
  }
  activations_.note_peak();
  if (!mode_.backward) release(chunk, micro_batch);
}

void TransformerStage::run_backward(int chunk, int micro_batch, ConstTensorView output_gradient,
                                    TensorView input_gradient, WeightGradient weights) {
  Saved& state = saved(chunk, micro_batch);
  const bool first = is_first(chunk);
  const LayerShape shape = shape_of(micro_batch);
  const ArenaScope scope(context_.workspace);
  ResidualPair streams(shape, context_.workspace);
  const LayerStack::Pass pass = this->pass(chunk, micro_batch, shape, streams);
  ConstTensorView dy = output_gradient;
  layers_.begin_fetch(pass, state.layers);  // beside the head
  if (is_last(chunk)) {
    hooks_.before_backward(head_unit());
    if (shard_.first_stage && has_table_in_head_) hooks_.before_backward(embedding_unit);
    const TensorView dx = layers_.layers_of(chunk) == 0 && !first ? input_gradient : streams.next();
    const ArenaScope head_scope(context_.workspace);
    ConstTensorView dnormed;
    if (ahead_) dnormed = ahead_->backward(pass, batch(micro_batch), mode_, state.ahead);
    head_->backward(shape, batch(micro_batch), mode_, *state.head, dnormed, dx);
    hooks_.after_backward(head_unit(), pass.last);
    pass.arena.release(state.head->mark);
    dy = dx;
  }
  dy = layers_.backward(pass, dy, first ? TensorView() : input_gradient, weights, state.layers);
  if (pass.probe != nullptr) pass.probe->after_backward(chunk, dy);
  if (first && embedding_->trains()) {
    hooks_.before_backward(embedding_unit);
    embedding_->backward(shape, batch(micro_batch), pass.dropout, state.embedding, dy);
    hooks_.after_backward(embedding_unit, pass.last);
  }
  activations_.note_peak();
}

void TransformerStage::backward_input(int chunk, int micro_batch, ConstTensorView output_gradient,
                                      TensorView input_gradient) {
  run_backward(chunk, micro_batch, output_gradient, input_gradient, WeightGradient::later);
}

void TransformerStage::backward_weight(int chunk, int micro_batch) {
  const LayerShape shape = shape_of(micro_batch);
  ResidualPair streams(shape, context_.workspace);
  layers_.backward_weight(pass(chunk, micro_batch, shape, streams), saved(chunk, micro_batch).layers);
  release(chunk, micro_batch);
}

void TransformerStage::backward(int chunk, int micro_batch, ConstTensorView output_gradient,
                                TensorView input_gradient) {
  run_backward(chunk, micro_batch, output_gradient, input_gradient, WeightGradient::now);
  release(chunk, micro_batch);
}

}  // namespace trireme::model
