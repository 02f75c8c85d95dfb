#include "src/train/memory_estimate.hpp"

#include <algorithm>

#include "src/model/gpt_stage.hpp"

namespace trireme::train {
namespace {

/// Bytes kept for backward at the most, where a micro-batch of chunk c keeps `saved[c]` of them.
std::size_t peak_activations(const std::vector<parallel::Step>& steps, const std::vector<std::size_t>& saved) {
  std::size_t now = 0;
  std::size_t most = 0;
  for (const parallel::Step& step : steps) {
    const std::size_t bytes = saved[static_cast<std::size_t>(step.chunk)];
    if (step.kind == parallel::StepKind::forward) most = std::max(most, now += bytes);
    if (step.kind == parallel::StepKind::backward || step.kind == parallel::StepKind::backward_weight) now -= bytes;
  }
  return most;
}

}  // namespace

MemoryEstimate estimate_memory(const model::GptConfig& config, const LayoutOptions& layout,
                               const parallel::ProcessGrid& grid, int rank, std::int64_t micro_batches) {
  const parallel::GridPosition position = grid.position(rank);
  const parallel::VocabularyPartition vocabulary(config.vocabulary, position.tensor, grid.tensor_size(),
                                                 layout.vocabulary_multiple, layout.padded_vocabulary_size);
  const parallel::PipelineLayout pipeline =
      parallel::PipelineLayout::of(config.layers, grid.pipeline_size(), layout.pipeline);
  const model::GptPlace place = model::GptPlace::of(pipeline, position.tensor, grid.tensor_size(), position.pipeline);
  const parallel::BufferLayout buffer = parallel::ParameterBuffer::make_layout(
      layout.dtype, gpt_parameters(config, place, vocabulary), layout.data_parallel, grid.gradient_size());
  const parallel::ParameterBuffer::Memory memory =
      parallel::ParameterBuffer::memory(layout.dtype, layout.data_parallel, buffer);
  const bool own_masters = accumulation_type(layout.dtype) == layout.dtype;

  MemoryEstimate estimate;
  estimate.parameters = memory.values;
  estimate.gradients = memory.gradients;
  estimate.gradient_work = memory.work;
  estimate.optimizer = static_cast<std::size_t>(buffer.shard_elements()) * size_of(accumulation_type(layout.dtype)) *
                       (own_masters ? 2 : 3);
  const parallel::Schedule schedule =
      parallel::make_schedule(parallel::schedule_for(layout.schedule, pipeline.chunks), pipeline.stages,
                              static_cast<int>(micro_batches), pipeline.chunks);
  const model::LayerShape shape =
      model::LayerShape::of(config, layout.sequence_length, layout.micro_batch_size, grid.tensor_size(),
                            layout.sequence_parallel && grid.tensor_size() > 1, layout.dtype);
  std::vector<std::size_t> saved;
  for (int chunk = 0; chunk < pipeline.chunks; ++chunk) {
    saved.push_back(model::GptStage::saved_bytes(shape, place, chunk, vocabulary));
  }
  estimate.activations = peak_activations(schedule.steps[static_cast<std::size_t>(position.pipeline)], saved);
  return estimate;
}

}  // namespace trireme::train
