#pragma once

#include <map>
#include <vector>

#include "src/plan/work/work_event.hpp"
#include "src/train/stage_rehearsal.hpp"

namespace trireme::plan {

/// Events of one chunk with one micro-batch, in program order.
struct StageWork {
  std::map<parallel::StepKind, std::vector<WorkEvent>> steps;  ///< `backward` in one piece, and its halves
  std::int64_t parameters = 0;                                 ///< elements on this rank, with padding
  double boundary_bytes = 0;                                   ///< size of a message to another chunk
};

/// Ranks that divide a layer.
struct LayerGrid {
  int tensor = 1;
  int context = 1;
  friend auto operator<=>(const LayerGrid&, const LayerGrid&) = default;
};

/// Records the program's work in a chunk of `layers` layers, by a rehearsal of its own code on a stand-in GPU.
/// ConfigError if the program could not run it.
StageWork record_stage(const model::ModelConfig& config, const train::ExecutionConfig& execution, const LayerGrid& grid,
                       const train::StageRehearsal::Layers& layers);

}  // namespace trireme::plan
