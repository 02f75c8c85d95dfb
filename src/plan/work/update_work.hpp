#pragma once

#include <vector>

#include "src/model/model_config.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/plan/work/work_event.hpp"
#include "src/train/train_options.hpp"

namespace trireme::plan {

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
  std::vector<WorkEvent> optimizer;  ///< update and gathers of parameters
};

/// Records the update of tensor rank 0 of pipeline rank `pipeline_rank`, by the program's own code: DataParallel,
/// gradient norm and optimizer on all parameters of the rank, without allocating them. ConfigError if the program could
/// not run it.
UpdateWork record_update(const model::ModelConfig& config, const train::ExecutionConfig& execution,
                         const optim::OptimizerOptions& optimizer, const parallel::ProcessGrid& grid,
                         int pipeline_rank);

}  // namespace trireme::plan
