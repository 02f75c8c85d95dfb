#pragma once

#include <optional>
#include <vector>

#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::parallel {

/// How the layers of a model are to be shared out over a pipeline, as asked for. By default every stage holds one chunk
/// and all chunks hold as many layers.
struct PipelineSplit {
  std::optional<int> chunks{};            ///< chunks of each rank: --vpp
  std::optional<int> layers_per_chunk{};  ///< the same said by layers: --num-layers-per-virtual-pipeline-stage
  std::vector<int> layers{};          ///< layers of each chunk in the order of data: --pipeline-model-parallel-layout
  std::optional<int> first_stage{};   ///< layers of the first rank: --decoder-first-pipeline-num-layers
  std::optional<int> last_stage{};    ///< layers of the last rank: --decoder-last-pipeline-num-layers
  bool standalone_embedding = false;  ///< the first rank has no layers: --standalone-embedding-stage
};

/// Which layers lie where in a pipeline. Data passes chunk 0 of every rank, then chunk 1 of every rank, and so on; a
/// chunk's position in that order is chunk x stages + rank.
struct PipelineLayout {
  int stages = 1;
  int chunks = 1;           ///< chunks of each rank
  std::vector<int> layers;  ///< layers of each chunk, by position

  /// Number of the first layer of the chunk at `position`.
  int first_layer(int position) const;

  /// Shares `layers` layers out over `stages` ranks. A first or last stage of its own size leaves equal parts of the
  /// rest to the other ranks; each rank's layers are shared out equally over its chunks. The first chunk may hold the
  /// embedding alone and the last one the output head alone; every other chunk has at least one layer. Throws one
  /// ConfigError that names the values and those that would do.
  static PipelineLayout of(int layers, int stages, const PipelineSplit& cut = {});
};

/// The schedule that trains `chunks` chunks a rank: the one asked for, by default 1F1B, interleaved where there are
/// several. ConfigError where it does not go with so many chunks.
ScheduleKind schedule_for(std::optional<ScheduleKind> asked, int chunks);

}  // namespace trireme::parallel
