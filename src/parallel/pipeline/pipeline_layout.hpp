#pragma once

#include <optional>
#include <vector>

#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::parallel {

/// Requested distribution of the layers of a model over a pipeline. By default every stage holds one chunk, and all
/// chunks have equally many layers.
struct PipelineSplit {
  std::optional<int> chunks{};  ///< chunks of each rank: --vpp
  std::optional<int>
      layers_per_chunk{};     ///< alternative to `chunks`, layers of each: --num-layers-per-virtual-pipeline-stage
  std::vector<int> layers{};  ///< layers of each chunk in the order of data: --pipeline-model-parallel-layout
  std::optional<int> first_stage{};   ///< layers of the first rank: --decoder-first-pipeline-num-layers
  std::optional<int> last_stage{};    ///< layers of the last rank: --decoder-last-pipeline-num-layers
  bool standalone_embedding = false;  ///< the first rank has no layers: --standalone-embedding-stage

  friend bool operator==(const PipelineSplit&, const PipelineSplit&) = default;
};

/// Placement of layers in a pipeline. Data passes chunk 0 of every rank, then chunk 1 of every rank, and so on; a
/// chunk's position in that order is chunk x stages + rank.
struct PipelineLayout {
  int stages = 1;
  int chunks = 1;           ///< chunks of each rank
  std::vector<int> layers;  ///< layers of each chunk, by position

  /// Number of the first layer of the chunk at `position`.
  int first_layer(int position) const;

  /// Distributes `layers` layers over `stages` ranks. The other ranks share the layers that a first or last stage of a
  /// given size leaves equally. Each rank's layers are divided equally between its chunks. The first chunk may hold the
  /// embedding alone and the last one the output head alone; every other chunk has at least one layer. Throws one
  /// ConfigError that names the values, and values that work.
  static PipelineLayout of(int layers, int stages, const PipelineSplit& split = {});
};

/// Schedule for `chunks` chunks a rank: `requested`, or by default 1F1B, interleaved for several chunks. Throws
/// ConfigError if `requested` does not support that many chunks.
ScheduleKind schedule_for(std::optional<ScheduleKind> requested, int chunks);

}  // namespace trireme::parallel
