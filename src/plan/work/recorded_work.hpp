#pragma once

#include <map>
#include <span>
#include <vector>

#include "src/backend/kernels/kernel_call.hpp"
#include "src/comm/bus_bandwidth.hpp"
#include "src/model/model_config.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/train/stage_rehearsal.hpp"
#include "src/train/train_options.hpp"

namespace trireme::plan {

/// Event of a rank: a kernel, the start of a communication, the wait for one, or a copy to or from host memory beside
/// the kernels.
struct WorkEvent {
  enum class Kind { kernel, start, wait, to_host, from_host };
  Kind kind = Kind::kernel;
  KernelCall call{};                                        ///< kernel's call
  int operation = 0;                                        ///< number of the communication, from 0
  parallel::GroupKind group = parallel::GroupKind::tensor;  ///< in which it starts
  Collective collective = Collective::all_reduce;
  double bytes = 0;  ///< size of a copy, or of a communication as bus_bandwidth.hpp counts it
};

/// Bytes of the copies beside the kernels.
struct HostBytes {
  double to_host = 0, from_host = 0;
};
HostBytes host_bytes_of(std::span<const WorkEvent> events);

/// Events of one chunk with one micro-batch, in program order.
struct StageWork {
  std::map<parallel::StepKind, std::vector<WorkEvent>> steps;  ///< `backward` in one piece, and its halves
  std::int64_t parameters = 0;                                 ///< elements on this rank, with padding
  double boundary_bytes = 0;                                   ///< size of a message to another chunk
};

/// Records the program's work in a chunk of `layers` layers, by a rehearsal of its own code on a stand-in GPU.
/// ConfigError if the program could not run it.
StageWork record_stage(const model::ModelConfig& config, const train::ExecutionConfig& execution,
                       const parallel::ProcessGrid& grid, const train::StageRehearsal::Layers& layers);

/// Work of a rank between the backwards of its chunks and the next forwards, besides the layers themselves. Operations
/// are numbered across all parts, in step order.
struct UpdateWork {
  /// Around the work of one unit of parameters: the embeddings, a layer, the head.
  struct Unit {
    enum class Part { embedding, layer, head };
    Part part = Part::layer;
    int chunk = 0;
    std::vector<WorkEvent> before_backward{}, after_backward{};            ///< all micro-batches except the last
    std::vector<WorkEvent> before_last_backward{}, after_last_backward{};  ///< the last micro-batch
    std::vector<WorkEvent> before_forward{};                               ///< first micro-batch after an update
  };
  std::vector<Unit> units;           ///< in the order of a backward
  std::vector<WorkEvent> clearing;   ///< clears gradients, before the first forward
  std::vector<WorkEvent> reduction;  ///< part remaining after the last backward
  std::vector<WorkEvent> norm;
  std::vector<WorkEvent> optimizer;        ///< update and gathers of parameters
  std::size_t buckets_beside_forward = 0;  ///< buckets of an update that runs beside the next forward
};

/// Records the update of tensor rank 0 of pipeline rank `pipeline_rank`, by the program's own code: DataParallel,
/// gradient norm and optimizer on all parameters of the rank, without allocating them. ConfigError if the program could
/// not run it.
UpdateWork record_update(const model::ModelConfig& config, const train::ExecutionConfig& execution,
                         const optim::OptimizerOptions& optimizer, const parallel::ProcessGrid& grid,
                         int pipeline_rank);

}  // namespace trireme::plan
