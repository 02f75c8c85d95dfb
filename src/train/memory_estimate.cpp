#include "src/train/memory_estimate.hpp"

#include <algorithm>

#include "src/backend/rehearsal_backend.hpp"
#include "src/comm/rehearsal_communicator.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/stage_rehearsal.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {
namespace {

using parallel::GroupKind;

parallel::GridCommunicators rehearsal_communicators(const parallel::ProcessGrid& grid, int rank) {
  parallel::GridCommunicators groups;
  for (const GroupKind kind : parallel::all_group_kinds) {
    const std::vector<int> ranks = grid.group(kind, rank);
    if (ranks.empty()) continue;
    const auto group_rank = std::ranges::find(ranks, rank) - ranks.begin();
    groups.of(kind) = std::make_unique<RehearsalCommunicator>(static_cast<int>(group_rank),
                                                              static_cast<int>(ranks.size()), parallel::name_of(kind));
  }
  return groups;
}

/// Layers with experts, and the elements of all their experts without routers and shared blocks.
struct Experts {
  int layers = 0;
  double elements = 0, trained = 0;
};
Experts experts_of(const model::ModelConfig& config) {
  Experts experts;
  for (int layer = 0; layer < config.all_layers(); ++layer) experts.layers += config.has_experts(layer) ? 1 : 0;
  const auto count = static_cast<double>(experts.layers) * static_cast<double>(config.experts.count);
  const std::int64_t h = config.hidden, f = config.expert_ffn_hidden(), expansion = (config.gated ? 2 : 1) * f;
  const double of_weights = count * static_cast<double>((expansion + f) * h);
  const model::LowRankAdapters& adapters = config.adapters;
  const std::int64_t widths =
      (adapters.adapt(".mlp.fc") ? h + expansion : 0) + (adapters.adapt(".mlp.proj") ? f + h : 0);
  const double of_adapters = count * static_cast<double>(adapters.rank * widths);
  experts.elements = of_weights + of_adapters;
  experts.trained = adapters.any() ? of_adapters : of_weights;
  return experts;
}

}  // namespace

MemoryEstimate estimate_memory(const Backend& backend, const model::ModelConfig& config,
                               const ExecutionConfig& execution, const TrainOptions& options,
                               const parallel::ProcessGrid& grid, int rank) {
  RehearsalBackend rehearsal(backend);
  RehearsalCommunicator world(rank, grid.world_size(), "world");
  parallel::GridCommunicators communicators = rehearsal_communicators(grid, rank);
  ParallelModel model(rehearsal, world, grid, communicators, config, execution);
  Trainer trainer(model, options);

  const std::vector<model::MicroBatch> micro_batches(
      static_cast<std::size_t>(trainer.batches().max_micro_batches()),
      unseen_micro_batch(training_fields(config, execution, grid.tensor_size(), options.documents),
                         model.sequence_shard().rows, execution.micro_batch_size, execution.dtype));
  if (!model.knows_fp8_scales()) model.set_fp8_amax({});
  model.run(micro_batches, {.backward = true,
                            .limits_experts = true,
                            .hidden_dropout = config.hidden_dropout,
                            .attention_dropout = config.attention_dropout,
                            .router_jitter = config.experts.jitter_eps});
  model.reduce_gradients();
  model.run(micro_batches, {.limits_experts = true});

  MemoryEstimate estimate;
  const parallel::ParameterBuffer::Memory memory = model.parameters().memory();
  estimate.parameters = memory.values;
  estimate.gradients = memory.gradients;
  estimate.gradient_work = memory.work;
  estimate.optimizer = trainer.optimizer_bytes();
  const ParallelModel::RunningMemory running = model.running_memory();
  estimate.activations = running.activations;
  estimate.work = running.work;
  estimate.messages = running.messages;
  estimate.host_activations = running.host;
  estimate.host_optimizer = trainer.optimizer_host_bytes();
  estimate.batches = rehearsal.peak_allocated_bytes() - estimate.allocated();
  estimate.kernels = backend.kernel_memory_bytes(rehearsal.kernel_extents());
  const auto bytes_of = [&](OptimizerState optimizer) {
    MemoryEstimate::State sum;
    for (const checkpoint::StateTensor& tensor : trainer.state_tensors(optimizer)) {
      sum.all += tensor.data.size_bytes();
      if (!rehearsal.is_in_host_memory(tensor.data)) sum.on_device += tensor.data.size_bytes();
    }
    return sum;
  };
  estimate.state = bytes_of(OptimizerState::kept);
  estimate.weights = bytes_of(OptimizerState::left_out);
  return estimate;
}

MinMemory min_memory(const model::ModelConfig& config, const ExecutionConfig& execution,
                     const parallel::ProcessGrid& grid, const std::optional<optim::OptimizerOptions>& optimizer) {
  using parallel::DataSharding;
  const parallel::DataParallelOptions& data = execution.parallel.data_parallel;
  const auto value = static_cast<double>(size_of(execution.dtype));
  const auto sum = static_cast<double>(size_of(accumulation_type(execution.dtype)));
  // Bytes of a parameter on each of its holders; of one that is trained also there, and once for all of them.
  double values = value, copied = 0, shared = 0;
  if (!optimizer) {
    values += sum;  // read before it is rounded
  } else {
    const double gradient = data.low_precision_gradients ? value : sum;
    (data.sharding == DataSharding::optimizer_and_gradients ? shared : copied) += gradient;
    const auto moments = static_cast<double>(optim::moment_bytes(*optimizer, execution.dtype));
    const bool on_device = optimizer->offload.fraction == 0;  // a fraction is rounded up to buckets
    (data.sharding == DataSharding::none ? copied : shared) += on_device ? moments + (value == sum ? 0 : sum) : 0;
  }
  const std::int64_t padded =
      parallel::VocabularyPartition(config.vocabulary, 0, grid.tensor_size(), execution.vocabulary_multiple,
                                    execution.padded_vocabulary_size)
          .padded_size();
  const auto h = static_cast<double>(config.hidden);
  const double padding = (config.has_tied_head() || !config.predicts_tokens() ? 1 : 2) *
                         static_cast<double>(padded - config.vocabulary) * h;
  const double parameters = static_cast<double>(model::parameter_count(config)) + padding;
  const double trained =
      config.adapters.any() ? static_cast<double>(model::trained_parameter_count(config)) : parameters;
  const Experts experts = experts_of(config);
  const double tokens =
      static_cast<double>(execution.sequence_length) * static_cast<double>(execution.micro_batch_size);
  const std::int64_t expansion = experts.layers < config.all_layers() ? config.expansion() : 0;
  const std::int64_t predictions =
      training_fields(config, execution, grid.tensor_size()).predictions_of(execution.sequence_length);
  const std::int64_t logits = padded * predictions / execution.sequence_length / execution.cross_entropy_chunks;
  const double max_width = static_cast<double>(std::max({config.hidden, expansion, logits}));
  return {
      parameters * values * grid.gradient_size() + trained * (copied * grid.gradient_size() + shared) -
          (experts.elements * values + experts.trained * copied) * (grid.gradient_size() - grid.expert_gradient_size()),
      grid.data_size() * tokens * max_width * value, padded};
}

LayerActivations layer_activations(const Backend& backend, const model::ModelConfig& config,
                                   const ExecutionConfig& execution, const parallel::ProcessGrid& grid) {
  const model::Recomputation& recomputation = execution.recomputation;
  const bool full = recomputation.granularity == model::RecomputeGranularity::full;
  const bool selective = recomputation.selected().attention;
  const bool sequence_parallel = execution.parallel.sequence_parallel && grid.tensor_size() > 1;
  // A stage of one span of layers, and its input, after a forward.
  const int layers = full && recomputation.method == model::RecomputeMethod::uniform ? recomputation.layers : 1;
  RehearsalBackend rehearsal(backend);
  RehearsalCommunicator tensor_group(0, grid.tensor_size(), "tensor");
  RehearsalCommunicator context_group(0, grid.context_size(), "context");
  RehearsalCommunicator expert_group(0, grid.token_group_size(), "expert");
  StageRehearsal stage(rehearsal, tensor_group, context_group, expert_group, grid, config, execution,
                       {.layers = layers, .first = true, .last = false});
  stage.run(parallel::StepKind::forward);
  LayerActivations result;
  result.kept = stage.activation_bytes() / static_cast<std::size_t>(layers);

  const double t = grid.tensor_size();
  const double sbh = static_cast<double>(stage.positions() * execution.micro_batch_size * config.hidden);
  const double scores =
      5 * static_cast<double>(config.heads * execution.sequence_length) / static_cast<double>(config.hidden);
  const bool in_shards = sequence_parallel || recomputation.distribute;
  result.published = {
      {"tensor parallelism", "s b h (10 + 24/t + 5 a s / (h t))", sbh * (10 + 24 / t + scores / t),
       !sequence_parallel && !selective && !full},
      {"  and sequence parallelism", "s b h (34 + 5 a s / h) / t", sbh * (34 + scores) / t,
       sequence_parallel && !selective && !full},
      {"  and selective recomputation", "s b h (10 + 24/t)", sbh * (10 + 24 / t), !sequence_parallel && selective},
      {"  and both", "34 s b h / t", 34 * sbh / t, sequence_parallel && selective},
      {"full recomputation, layer by layer", "2 s b h", 2 * sbh, full && layers == 1 && !in_shards},
      {"  and inputs in parts", "2 s b h / t", 2 * sbh / t, full && layers == 1 && in_shards}};
  return result;
}

}  // namespace trireme::train
