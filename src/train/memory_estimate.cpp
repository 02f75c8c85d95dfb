#include "src/train/memory_estimate.hpp"

#include <algorithm>

#include "src/model/gpt_stage.hpp"

namespace trireme::train {
MemoryEstimate estimate_memory(const model::GptConfig& config, const LayoutOptions& layout,
                               const parallel::ProcessGrid& grid, int rank, std::int64_t micro_batches) {
  const parallel::GridPosition position = grid.position(rank);
  const parallel::VocabularyPartition vocabulary(config.vocabulary, position.tensor, grid.tensor_size(),
                                                 layout.vocabulary_multiple, layout.padded_vocabulary_size);
  const model::GptPlace place =
      model::GptPlace::of(config, position.tensor, grid.tensor_size(), position.pipeline, grid.pipeline_size());
  const parallel::BufferLayout buffer = parallel::ParameterBuffer::make_layout(
      layout.dtype, gpt_parameters(config, place, vocabulary), layout.data_parallel, grid.data_size());
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
      parallel::make_schedule(layout.schedule, grid.pipeline_size(), static_cast<int>(micro_batches));
  const model::LayerShape shape =
      model::LayerShape::of(config, layout.sequence_length, layout.micro_batch_size, grid.tensor_size(),
                            layout.sequence_parallel && grid.tensor_size() > 1, layout.dtype);
  estimate.activations =
      static_cast<std::size_t>(parallel::most_in_flight(schedule.steps[static_cast<std::size_t>(position.pipeline)])) *
      model::GptStage::saved_bytes(shape, place, 0, vocabulary);
  return estimate;
}

}  // namespace trireme::train
