#include "src/train/parallel_gpt.hpp"

namespace trireme::train {
namespace {

model::GptPlace place_of(const model::GptConfig& config, const parallel::GridCommunicators& communicators,
                         const LayoutOptions& layout) {
  model::GptPlace place = model::GptPlace::of(config, communicators.tensor->rank(), communicators.tensor->size(),
                                              communicators.pipeline->rank(), communicators.pipeline->size());
  place.sequence_parallel = layout.sequence_parallel && place.tensor_size > 1;
  return place;
}

}  // namespace

ParallelGpt::ParallelGpt(Backend& backend, Communicator& world, const parallel::ProcessGrid& grid,
                         parallel::GridCommunicators& communicators, const model::GptConfig& config,
                         const LayoutOptions& layout)
    : backend_(backend),
      world_(world),
      grid_(grid),
      communicators_(communicators),
      config_(config),
      layout_(layout),
      vocabulary_(config.vocabulary, communicators.tensor->rank(), communicators.tensor->size(),
                  layout.vocabulary_multiple, layout.padded_vocabulary_size),
      place_(place_of(config, communicators, layout)),
      workspace_(backend, std::size_t{1} << 22),
      parameters_(backend, layout.dtype, model::gpt_parameters(config, place_, vocabulary_)),
      stage_({backend, *communicators.tensor, workspace_, place_.sequence_parallel, layout.async_tensor_all_reduce},
             parameters_, config, place_, vocabulary_, layout.sequence_length, layout.micro_batch_size, layout.dtype),
      executor_(backend, *communicators.pipeline, stage_) {}

void ParallelGpt::run(std::vector<model::MicroBatch> micro_batches, const model::StageMode& mode) {
  const int count = static_cast<int>(micro_batches.size());
  stage_.begin(std::move(micro_batches), mode);
  auto& schedule = schedules_[{mode.backward, count}];
  if (schedule.steps.empty()) {
    const int stages = grid_.pipeline_size();
    schedule = mode.backward ? parallel::make_schedule(layout_.schedule, stages, count)
                             : parallel::make_forward_schedule(stages, count);
  }
  executor_.run(schedule);
}

void ParallelGpt::reduce_gradients() {
  parameters_.sum_partial_gradients(backend_, *communicators_.tensor, workspace_);
  // The first and the last stage each hold the tied table and saw half of its use.
  if (communicators_.embedding && communicators_.embedding->size() > 1) {
    Stream& stream = backend_.compute_stream();
    communicators_.embedding->all_reduce(stream, parameters_.at("wte").gradient, ReduceOp::sum).wait(stream);
  }
  parameters_.reduce_gradients(backend_, *communicators_.data);
}

double ParallelGpt::take_global_loss_sum() {
  double sum = stage_.take_loss_sum();
  if (communicators_.tensor->rank() != 0) sum = 0;  // every tensor rank has the same sum
  ImmediateStream host;
  world_.all_reduce(host, TensorView(&sum, {1}), ReduceOp::sum).wait(host);
  return sum;
}

}  // namespace trireme::train
