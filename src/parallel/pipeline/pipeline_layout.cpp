#include "src/parallel/pipeline/pipeline_layout.hpp"

#include <fmt/ranges.h>

#include <numeric>

#include "src/base/check.hpp"

namespace trireme::parallel {
namespace {

/// Requested chunks of a rank.
int chunks_of(int layers, int stages, const PipelineSplit& split) {
  int chunks = split.chunks.value_or(1);
  if (split.layers_per_chunk) {
    const int n = *split.layers_per_chunk;
    TRIREME_CHECK(n >= 1 && layers % (stages * n) == 0, ConfigError,
                  "<num_layers_per_virtual_pipeline_stage> {}: {} layers on {} stages do not divide into chunks of {}; "
                  "it must divide the layers of a stage ({})",
                  n, layers, stages, n, layers / stages);
    chunks = layers / stages / n;
    TRIREME_CHECK(!split.chunks || *split.chunks == chunks, ConfigError,
                  "<num_layers_per_virtual_pipeline_stage> {} makes {} chunks a rank of {} layers on {} stages, but "
                  "<vpp> is {}: leave one of the two out",
                  n, chunks, layers, stages, split.chunks.value_or(0));
  }
  if (!split.layers.empty()) {
    const int size = static_cast<int>(split.layers.size());
    if (!split.chunks && size % stages == 0) chunks = size / stages;
    TRIREME_CHECK(size == stages * chunks, ConfigError,
                  "<pipeline_model_parallel_layout> names {} chunks; {} stages of {} chunks are {}", size, stages,
                  chunks, stages * chunks);
  }
  TRIREME_CHECK(chunks >= 1, ConfigError, "<vpp> {}: a rank has at least one chunk", chunks);
  return chunks;
}

/// Checks an explicit layout.
void check_layers(const std::vector<int>& chunk_layers, int layers) {
  const int sum = std::accumulate(chunk_layers.begin(), chunk_layers.end(), 0);
  TRIREME_CHECK(sum == layers, ConfigError, "<pipeline_model_parallel_layout> {} holds {} layers, the model has {}",
                fmt::join(chunk_layers, ","), sum, layers);
  for (std::size_t i = 0; i < chunk_layers.size(); ++i) {
    const bool at_an_end = i == 0 || i + 1 == chunk_layers.size();
    TRIREME_CHECK(
        chunk_layers[i] > 0 || (chunk_layers[i] == 0 && at_an_end), ConfigError,
        "<pipeline_model_parallel_layout> {}: chunk {} has {} layers; only the first chunk (the embedding) and "
        "the last one (the output head) may have none",
        fmt::join(chunk_layers, ","), i, chunk_layers[i]);
  }
}

/// Layers of each rank.
std::vector<int> stage_layers(int layers, int stages, int chunks, const PipelineSplit& split) {
  const std::optional<int> first = split.standalone_embedding ? 0 : split.first_stage;
  if (!first && !split.last_stage) {
    const int all = stages * chunks;
    TRIREME_CHECK(layers % all == 0, ConfigError,
                  "{} layers do not divide into {} pipeline stages{}: choose <num_layers> as a multiple of {}, another "
                  "<pipeline_model_parallel_size>, or the layers of each with <pipeline_model_parallel_layout>",
                  layers, stages, chunks > 1 ? fmt::format(" of {} chunks", chunks) : "", all);
    return std::vector<int>(static_cast<std::size_t>(stages), layers / stages);
  }
  const int others = stages - (first ? 1 : 0) - (split.last_stage ? 1 : 0);
  const int rest = layers - first.value_or(0) - split.last_stage.value_or(0);
  const bool fits = others == 0 ? rest == 0 : others > 0 && rest >= others && rest % others == 0;
  std::string said;
  if (split.standalone_embedding) said = "<standalone_embedding_stage>";
  if (split.first_stage) said = fmt::format("<decoder_first_pipeline_num_layers> {}", *split.first_stage);
  if (split.last_stage) {
    said += fmt::format("{}<decoder_last_pipeline_num_layers> {}", said.empty() ? "" : " and ", *split.last_stage);
  }
  TRIREME_CHECK(
      fits, ConfigError,
      "{}: of {} layers {} are left for the other {} of {} stages, which must get equal numbers of at least one", said,
      layers, rest, others, stages);
  std::vector<int> result(static_cast<std::size_t>(stages), others > 0 ? rest / others : 0);
  if (first) result.front() = *first;
  if (split.last_stage) result.back() = *split.last_stage;
  for (const int n : result) {
    TRIREME_CHECK(n % chunks == 0, ConfigError,
                  "{}: the stages get {} layers, and each number must be a multiple of the {} chunks a stage (<vpp>)",
                  said, fmt::join(result, ", "), chunks);
  }
  return result;
}

}  // namespace

int PipelineLayout::first_layer(int position) const {
  return std::accumulate(layers.begin(), layers.begin() + position, 0);
}

PipelineLayout PipelineLayout::of(int layers, int stages, const PipelineSplit& split) {
  TRIREME_CHECK(layers >= 1 && stages >= 1, ConfigError, "{} layers on {} stages: each is at least 1", layers, stages);
  const bool uneven = split.first_stage || split.last_stage || split.standalone_embedding;
  TRIREME_CHECK(!split.standalone_embedding || !split.first_stage, ConfigError,
                "<standalone_embedding_stage> leaves the first stage no layers; <decoder_first_pipeline_num_layers> {} "
                "contradicts it",
                split.first_stage.value_or(0));
  TRIREME_CHECK(split.layers.empty() || !(uneven || split.layers_per_chunk), ConfigError,
                "<pipeline_model_parallel_layout> sets the layers of all stages: leave out "
                "<decoder_first_pipeline_num_layers>, <decoder_last_pipeline_num_layers>, <standalone_embedding_stage> "
                "and <num_layers_per_virtual_pipeline_stage>");
  TRIREME_CHECK(!uneven || !split.layers_per_chunk, ConfigError,
                "<num_layers_per_virtual_pipeline_stage> is for stages of equal size: use <vpp> instead");
  TRIREME_CHECK(split.first_stage.value_or(1) >= 1 && split.last_stage.value_or(1) >= 1, ConfigError,
                "<decoder_first_pipeline_num_layers> and <decoder_last_pipeline_num_layers> must be at least 1; for a "
                "first stage without layers use <standalone_embedding_stage>");
  PipelineLayout layout;
  layout.stages = stages;
  layout.chunks = chunks_of(layers, stages, split);
  TRIREME_CHECK(!uneven || stages > 1, ConfigError,
                "stages of different sizes need <pipeline_model_parallel_size> of at least 2, not {}", stages);
  TRIREME_CHECK(!split.standalone_embedding || layout.chunks == 1, ConfigError,
                "<standalone_embedding_stage> needs one chunk a rank, not {}. With <vpp>, use "
                "<pipeline_model_parallel_layout> 0,... instead",
                layout.chunks);
  if (!split.layers.empty()) {
    check_layers(split.layers, layers);
    layout.layers = split.layers;
    return layout;
  }
  const std::vector<int> of_stage = stage_layers(layers, stages, layout.chunks, split);
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    for (const int n : of_stage) layout.layers.push_back(n / layout.chunks);
  }
  return layout;
}

ScheduleKind schedule_for(std::optional<ScheduleKind> requested, int chunks) {
  const ScheduleKind kind =
      requested.value_or(chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_forward_one_backward);
  TRIREME_CHECK((kind == ScheduleKind::interleaved) == (chunks > 1), ConfigError, "<schedule> {} {}: choose {}",
                name_of(kind),
                chunks > 1 ? fmt::format("has one chunk of layers a rank, not {}", chunks)
                           : "needs several chunks of layers a rank",
                chunks > 1 ? "<schedule> interleaved, or <vpp> 1" : "<vpp> of at least 2, or <schedule> 1f1b");
  return kind;
}

}  // namespace trireme::parallel
