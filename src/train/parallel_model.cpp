#include "src/train/parallel_model.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "src/comm/host_collectives.hpp"

namespace trireme::train {
namespace {

model::StageShard shard_of(const parallel::PipelineLayout& pipeline, const parallel::ProcessGrid& grid, int rank,
                           const ParallelConfig& config) {
  model::StageShard shard = stage_shard(pipeline, grid, rank);
  shard.sequence_parallel = config.sequence_parallel && shard.tensor_size > 1;
  return shard;
}

/// The group, or null if it has one rank or is absent.
Communicator* if_several(const std::unique_ptr<Communicator>& group) {
  return group != nullptr && group->size() > 1 ? group.get() : nullptr;
}

/// Memory for the tensors that a group communicates.
Allocator& buffers_of(Communicator& group, Backend& backend, const ParallelConfig& config) {
  return config.registered_buffers ? group.buffers(backend) : backend;
}

/// Group 1 has the experts, if they are divided over ranks.
std::vector<parallel::GradientGroup> gradient_groups_of(const parallel::GridCommunicators& communicators) {
  std::vector<parallel::GradientGroup> groups = {
      {*communicators.gradient, *communicators.tensor, *communicators.model}};
  if (communicators.expert != nullptr) {
    Communicator& tensor =
        communicators.expert_tensor != nullptr ? *communicators.expert_tensor : *communicators.tensor;
    groups.push_back({*communicators.expert_gradient, tensor, *communicators.expert_model});
  }
  return groups;
}

std::vector<parallel::GradientGroupMember> members_of(const std::vector<parallel::GradientGroup>& groups) {
  std::vector<parallel::GradientGroupMember> members;
  for (const parallel::GradientGroup& group : groups) members.push_back({group.gradient.size(), group.gradient.rank()});
  return members;
}

parallel::ExchangeOptions exchange_of(const model::StageShard& shard, const parallel::GridCommunicators& communicators,
                                      const ParallelConfig& config) {
  // With sequence parallelism the tensor ranks hold different shards already.
  const bool scatter = config.scatter_gather && !shard.sequence_parallel;
  return {config.overlap_p2p, scatter ? communicators.tensor.get() : nullptr};
}

std::vector<parallel::Parameter> parameters_of(const model::ModelConfig& config, const model::StageShard& shard,
                                               const parallel::VocabularyPartition& vocabulary, bool trains) {
  std::vector<parallel::Parameter> parameters = model::model_parameters(config, shard, vocabulary);
  if (trains || config.adapters.any()) return parameters;  // beside adapters, which are small, all are frozen
  for (parallel::Parameter& parameter : parameters) parameter.frozen = true;
  return parameters;
}

const ExecutionConfig& validated(const ExecutionConfig& execution, const model::ModelConfig& config,
                                 const parallel::ProcessGrid& grid) {
  validate(execution, config, grid.expert_size(), grid.folds_experts());
  validate_fp8(execution, config, grid.tensor_size(), grid.context_size());
  return execution;
}

/// Decorator that runs `stage` as graphs; null without `cuda_graphs`.
std::unique_ptr<model::RecordedStage> recorded(Backend& backend, model::TransformerStage& stage,
                                               parallel::GradientSums& sums, const ExecutionConfig& config) {
  if (!config.cuda_graphs) return nullptr;
  const parallel::DataParallelOptions& data = config.parallel.data_parallel;
  const model::RecordedStage::Unrecorded unrecorded{.first = data.overlap_gather, .last = data.overlap_reduce};
  return std::make_unique<model::RecordedStage>(backend, stage, sums, unrecorded);
}

}  // namespace

Growth memory_growth(const model::ModelConfig& config, const ExecutionConfig& execution) {
  const bool rows_vary = config.experts.count > 0 && !execution.parallel.pad_experts;
  return rows_vary || !execution.trains ? Growth::replace : Growth::append;
}

model::StageShard stage_shard(const parallel::PipelineLayout& pipeline, const parallel::ProcessGrid& grid, int rank) {
  const parallel::GridPosition at = grid.position(rank);
  model::StageShard shard = model::StageShard::of(pipeline, at.tensor, grid.tensor_size(), at.pipeline);
  shard.expert_rank = grid.expert_rank(rank);
  shard.expert_size = grid.expert_size();
  shard.expert_tensor_rank = grid.expert_tensor_rank(rank);
  shard.expert_tensor_size = grid.expert_tensor_size();
  return shard;
}

data::SampleFields sample_fields(const model::ModelConfig& config, const DocumentOptions& documents) {
  return {.token_types = config.has_token_types(),
          .positions = documents.reset_position_ids || documents.conversations_apart,
          .first_visible = documents.reset_attention_mask || documents.conversations_apart,
          .length = config.is_bert(),
          .is_random = config.has_binary_head() || !config.predicts_tokens(),
          .span_end = config.output == model::ModelOutput::spans,
          .last_token = !config.is_bert() && !config.predicts_tokens(),
          .samples_per_label = config.samples_per_label(),
          .ahead = config.predicts_ahead() ? config.ahead.depths : 0};
}

data::SampleFields training_fields(const model::ModelConfig& config, const ExecutionConfig& execution, int tensor_size,
                                   const DocumentOptions& documents) {
  data::SampleFields fields = sample_fields(config, documents);
  if (config.is_bert() && config.predicts_tokens()) {
    const std::int64_t multiple = std::int64_t{tensor_size} * execution.parallel.row_chunks;
    fields.predictions = (execution.max_predictions + multiple - 1) / multiple * multiple;
  }
  return fields;
}

ParallelModel::ParallelModel(Backend& backend, Communicator& world, const parallel::ProcessGrid& grid,
                             parallel::GridCommunicators& communicators, const model::ModelConfig& config,
                             const ExecutionConfig& execution)
    : backend_(backend),
      world_(world),
      grid_(grid),
      communicators_(communicators),
      config_(config),
      execution_(validated(execution, config, grid)),
      sequence_shard_(parallel::SequenceShard::of(execution.sequence_length, communicators.context->rank(),
                                                  communicators.context->size())),
      pipeline_layout_(
          parallel::PipelineLayout::of(config.layers, communicators.pipeline->size(), execution.parallel.pipeline)),
      schedule_kind_(parallel::schedule_for(execution.parallel.schedule, pipeline_layout_.chunks)),
      vocabulary_(config.vocabulary, communicators.tensor->rank(), communicators.tensor->size(),
                  execution.vocabulary_multiple, execution.padded_vocabulary_size),
      shard_(shard_of(pipeline_layout_, grid, world.rank(), execution.parallel)),
      workspace_(buffers_of(*communicators.tensor, backend, execution.parallel), std::size_t{1} << 22,
                 memory_growth(config, execution)),
      gradient_groups_(gradient_groups_of(communicators)),
      parameters_(backend, execution.dtype, parameters_of(config, shard_, vocabulary_, execution.trains),
                  execution.parallel.data_parallel, members_of(gradient_groups_),
                  &buffers_of(*communicators.gradient, backend, execution.parallel)),
      data_parallel_(backend, parameters_, gradient_groups_),
      fp8_(execution.fp8.used
               ? std::make_unique<parallel::Fp8Scaling>(backend, execution.fp8, config.layers, *communicators.tensor,
                                                        if_several(communicators.context))
               : nullptr),
      stage_({backend, *communicators.tensor, workspace_, shard_.sequence_parallel,
              execution.parallel.async_tensor_all_reduce, if_several(communicators.context),
              if_several(communicators.expert), execution.parallel.exchange_tokens, execution.parallel.expert_load,
              grid.expert_splits(), execution.parallel.overlap_shared_expert, execution.parallel.pad_experts,
              row_chunks_of(execution.parallel, shard_.tensor_size), /*collects_weight_gradients=*/false, fp8_.get()},
             parameters_, config, shard_, vocabulary_, sequence_shard_, execution.micro_batch_size, execution.dtype,
             execution.recomputation, execution.cross_entropy_chunks, data_parallel_),
      recorded_(recorded(backend, stage_, parameters_.sums(), execution)),
      executor_(backend, *communicators.pipeline, running_stage(),
                exchange_of(shard_, communicators, execution.parallel)) {
  parameters_.clear_gradients(backend);  // takes the memory of its table now
}

void ParallelModel::run(std::vector<model::MicroBatch> micro_batches, const model::StageMode& mode, bool as_graphs,
                        const std::function<void()>& before_backward) {
  const int count = static_cast<int>(micro_batches.size());
  if (mode.backward) data_parallel_.begin_step();
  if (fp8_) fp8_->begin(/*measures=*/mode.backward);
  model::ModelStage& stage = as_graphs ? running_stage() : stage_;
  stage.begin(std::move(micro_batches), mode);
  auto& schedule = schedules_[{mode.backward, count}];
  if (schedule.steps.empty()) {
    const int stages = grid_.pipeline_size();
    const int chunks = pipeline_layout_.chunks;
    schedule = mode.backward ? parallel::make_schedule(schedule_kind_, stages, count, chunks)
                             : parallel::make_forward_schedule(stages, count, chunks);
  }
  const auto clear = [&] {  // not called in a forward alone
    if (before_backward) before_backward();
    data_parallel_.clear_gradients();
  };
  if (&stage == &running_stage()) return executor_.run(schedule, clear);
  parallel::PipelineExecutor(backend_, *communicators_.pipeline, stage,
                             exchange_of(shard_, communicators_, execution_.parallel))
      .run(schedule, clear);
}

model::TransformerStage& ParallelModel::decoding_model() {
  data_parallel_.wait_for_parameters();
  if (!shard_.sequence_parallel && !fp8_) return stage_;
  if (!unsplit_) {
    parallel::TensorContext context = stage_.context();
    context.sequence_parallel = false;
    context.fp8 = nullptr;
    model::StageShard shard = shard_;
    shard.sequence_parallel = false;
    unsplit_ = std::make_unique<model::TransformerStage>(context, parameters_, config_, shard, vocabulary_,
                                                         sequence_shard_, 1, execution_.dtype, execution_.recomputation,
                                                         execution_.cross_entropy_chunks, data_parallel_);
    if (!router_biases_.empty()) unsplit_->set_router_biases(router_biases_);
  }
  return *unsplit_;
}

void ParallelModel::set_router_biases(std::span<const double> biases) {
  router_biases_.assign(biases.begin(), biases.end());
  stage_.set_router_biases(biases);
  if (unsplit_) unsplit_->set_router_biases(biases);
}

std::int64_t ParallelModel::length_multiple() const {
  if (shard_.divides_experts()) return 0;
  constexpr std::int64_t tile = 8, of_fp8 = 16;  // rows of full tiles, and of a product in FP8
  const std::int64_t chunks = communicators_.context->size() == 1 ? 1 : 2 * communicators_.context->size();
  const int shards = shard_.sequence_parallel ? shard_.tensor_size : 1;
  const std::int64_t multiple = std::lcm(tile, chunks * shards * stage_.context().row_chunks);
  if (!fp8_) return multiple;
  // A product has length x samples / (context ranks x row chunks) rows.
  const std::int64_t parts = of_fp8 * communicators_.context->size() * stage_.context().row_chunks;
  return std::lcm(multiple, parts / std::gcd(parts, execution_.micro_batch_size));
}

void ParallelModel::set_trace(TraceRecorder* trace) {
  trace_ = trace;
  executor_.set_trace(trace);
}

void ParallelModel::reduce_gradients() {
  const TraceScope scope(trace_, "reduce gradients", "communication");
  data_parallel_.finish_reduction();
  parameters_.sum_partial_gradients(backend_, gradient_groups_, workspace_);
  // The first and the last stage each hold the tied table and half of its gradient. Both shard it alike.
  Stream& stream = backend_.compute_stream();
  for (std::size_t i = 0; i < parameters_.parameters().size(); ++i) {
    if (!parameters_.parameters()[i].tied) continue;
    communicators_.embedding->all_reduce(stream, parameters_.shard_gradient(i), ReduceOp::sum).wait(stream);
  }
}

void ParallelModel::take_loss_sums(TensorView mine, TensorView all) {
  Stream& stream = backend_.compute_stream();
  stage_.take_loss_sums(mine);
  if (communicators_.tensor->rank() == 0) {
    backend_.copy_within(stream, mine, all);
  } else {
    backend_.elementwise().fill(stream, 0, all);  // every tensor rank has the same sums
  }
  if (backend_.memory_is_host()) return world_.all_reduce(stream, all, ReduceOp::sum).wait(stream);
  for (Communicator* group : {communicators_.gradient.get(), communicators_.model.get()}) {
    if (group->size() > 1) group->all_reduce(stream, all, ReduceOp::sum).wait(stream);
  }
}

model::LossSums ParallelModel::take_global_loss_sums() {
  model::LossSums mine = stage_.take_loss_sums();
  if (communicators_.tensor->rank() != 0) mine = {};  // every tensor rank has the same sums
  std::array<double, model::LossSums::kinds> sums = {mine.tokens, mine.samples, mine.ahead};
  all_reduce_numbers(world_, sums, ReduceOp::sum);
  return {sums[0], sums[1], sums[2]};
}

std::vector<model::ExpertLoad> ParallelModel::take_expert_loads() {
  const auto experts = static_cast<std::size_t>(config_.experts.count);
  if (experts == 0) return {};
  const std::size_t width = 2 * experts + 4;
  std::vector<double> sums(static_cast<std::size_t>(config_.all_layers()) * width);
  for (const model::ExpertLoad& load : stage_.take_expert_loads()) {
    if (load.tokens.empty() || communicators_.tensor->rank() != 0) continue;  // every tensor rank has the same load
    double* row = sums.data() + static_cast<std::size_t>(load.layer) * width;
    std::ranges::copy(load.tokens, row);
    std::ranges::copy(load.chosen, row + experts);
    row[2 * experts] = load.dropped;
    if (communicators_.context->rank() != 0) continue;  // every context rank has the same losses
    row[2 * experts + 1] = load.balance;
    row[2 * experts + 2] = load.z;
    row[2 * experts + 3] = load.entropy;
  }
  all_reduce_numbers(world_, sums, ReduceOp::sum);
  std::vector<model::ExpertLoad> loads;
  for (int layer = 0; layer < config_.all_layers(); ++layer) {
    if (!config_.has_experts(layer)) continue;
    const double* row = sums.data() + static_cast<std::size_t>(layer) * width;
    const double* end = row + 2 * experts;
    loads.push_back({layer, {row, row + experts}, {row + experts, end}, end[0], end[1], end[2], end[3]});
  }
  return loads;
}

std::vector<double> ParallelModel::fp8_seen() {
  if (!fp8_ || !fp8_->is_delayed()) return {};
  std::vector<double> seen = fp8_->read_seen();
  all_reduce_numbers(world_, seen, ReduceOp::max);
  return seen;
}

void ParallelModel::set_fp8_amax(std::vector<double> amax) {
  amax.resize(fp8_->tensors());
  fp8_->set_amax(amax);
}

std::vector<double> ParallelModel::take_sample_scores() {
  std::vector<double> scores = stage_.take_sample_scores();
  if (communicators_.tensor->rank() != 0) scores.clear();  // every tensor rank has the same scores
  return scores;
}

}  // namespace trireme::train
