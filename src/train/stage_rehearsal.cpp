#include "src/train/stage_rehearsal.hpp"

#include <memory>

#include "src/train/parallel_model.hpp"

namespace trireme::train {
namespace {

/// Returns the group, or null for one rank.
Communicator* if_several(Communicator& group) { return group.size() > 1 ? &group : nullptr; }

/// Returns a tensor of which only type and shape are valid.
TensorView unseen(DType dtype, const Shape& shape) {
  static std::byte byte;
  return {&byte, dtype, shape};
}

parallel::NoParameterHooks no_hooks;

model::StageShard shard_of(const StageRehearsal::Layers& layers, const ExecutionConfig& execution,
                           const parallel::ProcessGrid& grid) {
  model::StageShard shard;
  shard.chunks = {{0, layers.layers}};
  shard.first_stage = layers.first;
  shard.last_stage = layers.last;
  shard.tensor_size = grid.tensor_size();
  shard.sequence_parallel = execution.parallel.sequence_parallel && grid.tensor_size() > 1;
  shard.expert_size = grid.expert_size();
  shard.expert_tensor_size = grid.expert_tensor_size();
  return shard;
}

/// Scales that are known, as in all updates but the first; null if no product is rounded.
std::unique_ptr<parallel::Fp8Scaling> rehearsed_scaling(Backend& backend, Communicator& tensor_group,
                                                        Communicator& context_group, const ExecutionConfig& execution,
                                                        const StageRehearsal::Layers& layers) {
  if (!execution.fp8.used) return nullptr;
  parallel::Fp8Options options = execution.fp8;
  options.first_layers = options.last_layers = 0;  // layers here stand for any in the model
  auto scaling =
      std::make_unique<parallel::Fp8Scaling>(backend, options, layers.layers, tensor_group, if_several(context_group));
  if (!scaling->rounds()) scaling->set_amax(std::vector<double>(scaling->tensors()));
  return scaling;
}

}  // namespace

model::MicroBatch unseen_micro_batch(const data::SampleFields& fields, std::int64_t s, std::int64_t b, DType dtype) {
  const std::int64_t predictions = b * fields.predictions_of(s);
  model::MicroBatch batch{unseen(DType::int32, {s, b}), unseen(DType::int32, {predictions}),
                          unseen(accumulation_type(dtype), {predictions}), unseen(DType::int64, {b})};
  if (fields.predictions > 0) {
    batch.predictions = unseen(DType::int32, {predictions});
    batch.prediction_numbers = unseen(DType::int32, {s, b});
  }
  if (fields.token_types) batch.token_types = unseen(DType::int32, {s, b});
  if (fields.positions) batch.positions = unseen(DType::int32, {s, b});
  if (fields.first_visible) batch.first_visible = unseen(DType::int32, {s, b});
  if (fields.length) batch.lengths = unseen(DType::int32, {b});
  if (fields.is_random) {
    batch.sample_labels = unseen(DType::int32, {b / fields.samples_per_label});
    batch.sample_weights = unseen(accumulation_type(dtype), {b / fields.samples_per_label});
  }
  if (fields.span_end) batch.span_ends = unseen(DType::int32, {b});
  if (fields.ahead > 0) {
    batch.tokens_ahead = batch.labels_ahead = unseen(DType::int32, {fields.ahead, s, b});
    batch.ahead_weights = unseen(accumulation_type(dtype), {fields.ahead, s * b});
  }
  if (fields.last_token) batch.last_rows = unseen(DType::int32, {b});
  return batch;
}

StageRehearsal::StageRehearsal(Backend& backend, Communicator& tensor_group, Communicator& context_group,
                               Communicator& expert_group, const parallel::ProcessGrid& grid,
                               const model::ModelConfig& config, const ExecutionConfig& execution, const Layers& layers)
    : mode_{.backward = true,
            .hidden_dropout = config.hidden_dropout,
            .attention_dropout = config.attention_dropout,
            .router_jitter = config.experts.jitter_eps},
      sequence_(parallel::SequenceShard::of(execution.sequence_length, 0, context_group.size())),
      vocabulary_(config.vocabulary, 0, tensor_group.size(), execution.vocabulary_multiple,
                  execution.padded_vocabulary_size),
      workspace_(backend, std::size_t{1} << 20, memory_growth(config, execution)),
      shard_(shard_of(layers, execution, grid)),
      parameters_(backend, execution.dtype, model_parameters(config, shard_, vocabulary_), {},
                  std::vector<parallel::GradientGroupMember>(shard_.divides_experts() ? 2 : 1)),
      fp8_(rehearsed_scaling(backend, tensor_group, context_group, execution, layers)),
      stage_({backend, tensor_group, workspace_, shard_.sequence_parallel, execution.parallel.async_tensor_all_reduce,
              if_several(context_group), if_several(expert_group), execution.parallel.exchange_tokens,
              execution.parallel.expert_load, grid.expert_splits(), execution.parallel.overlap_shared_expert,
              execution.parallel.pad_experts, row_chunks_of(execution.parallel, grid.tensor_size()),
              /*collects_weight_gradients=*/false, fp8_.get()},
             parameters_, config, shard_, vocabulary_, sequence_, execution.micro_batch_size, execution.dtype,
             execution.recomputation, execution.cross_entropy_chunks, no_hooks) {
  stage_.begin({unseen_micro_batch(training_fields(config, execution, grid.tensor_size()), sequence_.rows,
                                   execution.micro_batch_size, execution.dtype)},
               mode_);
}

void StageRehearsal::run(parallel::StepKind kind) {
  const TensorView boundary = unseen(stage_.boundary_dtype(), stage_.boundary_shape(0));
  const TensorView none;
  const bool forward = kind == parallel::StepKind::forward;
  const bool reads = forward ? !stage_.is_first(0) : !stage_.is_last(0);
  const bool writes = forward ? !stage_.is_last(0) : !stage_.is_first(0);
  parallel::run_step(stage_, {kind, 0, 0}, reads ? boundary : none, writes ? boundary : none);
}

}  // namespace trireme::train
