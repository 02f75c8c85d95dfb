#include "src/train/memory_estimate.hpp"

#include <algorithm>

#include "src/model/gpt_stage.hpp"

namespace trireme::train {
namespace {

using ActivationBytes = model::GptStage::ActivationBytes;

/// Most bytes of activations at any time of `steps`, from those of each chunk.
std::size_t peak_activations(const std::vector<parallel::Step>& steps, const std::vector<ActivationBytes>& chunks) {
  std::size_t now = 0;
  std::size_t peak = 0;
  for (const parallel::Step& step : steps) {
    const ActivationBytes& bytes = chunks[static_cast<std::size_t>(step.chunk)];
    switch (step.kind) {
      case parallel::StepKind::forward:
        peak = std::max(peak, now + bytes.forward_peak);
        now += bytes.kept;
        break;
      case parallel::StepKind::backward:
        now -= bytes.kept;
        peak = std::max(peak, now + bytes.backward_peak);
        break;
      case parallel::StepKind::backward_input:
        now += bytes.between_halves - bytes.kept;
        peak = std::max(peak, now);
        break;
      case parallel::StepKind::backward_weight:
        now -= bytes.between_halves;
        break;
    }
  }
  return peak;
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
  const auto share = parallel::SequenceShare::of(layout.sequence_length, position.context, grid.context_size());
  const model::LayerShape shape =
      model::LayerShape::of(config, share.rows, layout.micro_batch_size, grid.tensor_size(),
                            layout.sequence_parallel && grid.tensor_size() > 1, layout.dtype);
  std::vector<ActivationBytes> chunks;
  for (int chunk = 0; chunk < static_cast<int>(place.chunks.size()); ++chunk) {
    chunks.push_back(model::GptStage::activation_bytes(shape, place, chunk, vocabulary, layout.recomputation));
  }
  estimate.activations = peak_activations(schedule.steps[static_cast<std::size_t>(position.pipeline)], chunks);
  return estimate;
}

LayerActivations layer_activations(const model::GptConfig& config, const LayoutOptions& layout, int tensor_size,
                                   int context_size) {
  const model::Recomputation& recomputation = layout.recomputation;
  const bool full = recomputation.granularity == model::RecomputeGranularity::full;
  const bool selective = recomputation.selective();
  const bool sequence_parallel = layout.sequence_parallel && tensor_size > 1;
  // A chunk of one group of layers and its input.
  const int layers = full && recomputation.method == model::RecomputeMethod::uniform ? recomputation.layers : 1;
  model::GptPlace place;
  place.chunks = {{0, layers}};
  place.last_stage = false;
  place.tensor_size = tensor_size;
  const auto share = parallel::SequenceShare::of(layout.sequence_length, 0, context_size);
  const model::LayerShape shape =
      model::LayerShape::of(config, share.rows, layout.micro_batch_size, tensor_size, sequence_parallel, layout.dtype);
  const parallel::VocabularyPartition vocabulary(config.vocabulary, 0, tensor_size);
  LayerActivations result;
  result.kept = model::GptStage::activation_bytes(shape, place, 0, vocabulary, recomputation).kept /
                static_cast<std::size_t>(layers);

  const double t = tensor_size;
  const double sbh = static_cast<double>(shape.rows() * shape.h);
  const double scores = 5 * static_cast<double>(config.heads * layout.sequence_length) / static_cast<double>(shape.h);
  const bool in_parts = sequence_parallel || recomputation.distribute;
  result.published = {
      {"tensor parallelism", "s b h (10 + 24/t + 5 a s / (h t))", sbh * (10 + 24 / t + scores / t),
       !sequence_parallel && !selective && !full},
      {"  and sequence parallelism", "s b h (34 + 5 a s / h) / t", sbh * (34 + scores) / t,
       sequence_parallel && !selective && !full},
      {"  and selective recomputation", "s b h (10 + 24/t)", sbh * (10 + 24 / t), !sequence_parallel && selective},
      {"  and both", "34 s b h / t", 34 * sbh / t, sequence_parallel && selective},
      {"full recomputation, layer by layer", "2 s b h", 2 * sbh, full && !in_parts},
      {"  and inputs in parts", "2 s b h / t", 2 * sbh / t, full && in_parts}};
  return result;
}

}  // namespace trireme::train
