#pragma once

#include <map>
#include <memory>
#include <vector>

#include "src/comm/bus_bandwidth.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/plan/cost/kernel_call.hpp"
#include "src/train/stage_rehearsal.hpp"

namespace trireme::plan {

/// Something that a rank does: a kernel, the start of a communication, or the wait for one.
struct WorkEvent {
  enum class Kind { kernel, start, wait };
  Kind kind = Kind::kernel;
  KernelCall call{};                                        ///< kernel's call
  int operation = 0;                                        ///< number of the communication, from 0
  parallel::GroupKind group = parallel::GroupKind::tensor;  ///< in which it starts
  Collective collective = Collective::all_reduce;
  double bytes = 0;  ///< as bus_bandwidth.hpp counts them
};

/// Events of one chunk with one micro-batch, in the order in which the program makes them.
struct StageWork {
  std::map<parallel::StepKind, std::vector<WorkEvent>> steps;  ///< `backward` in one piece, and its halves
  std::int64_t parameters = 0;                                 ///< elements on this rank, with padding
  double boundary_bytes = 0;                                   ///< size of a message to another chunk
};

/// Ranks among which a layer is divided.
struct LayerGrid {
  int tensor = 1;
  int context = 1;
  friend auto operator<=>(const LayerGrid&, const LayerGrid&) = default;
};

/// Records what the program does in a chunk of `layers` layers, by a rehearsal of its own code on a stand-in for a GPU.
/// ConfigError where the program could not run it.
StageWork record_stage(const model::ModelConfig& config, const train::ExecutionConfig& execution, const LayerGrid& grid,
                       const train::StageRehearsal::Layers& layers);

}  // namespace trireme::plan
