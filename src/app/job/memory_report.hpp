#pragma once

#include "src/app/job/job.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::app {

/// Throws EnvironmentError, on all ranks, where the model needs more memory than all of them have together. This is
/// arithmetic that takes no time and no memory. `remedies` lower the need. Without an `optimizer` the model is not
/// trained. Collective over the job's world.
void check_min_memory(const Job& job, const model::ModelConfig& config, const train::ExecutionConfig& execution,
                      const std::optional<optim::OptimizerOptions>& optimizer, const std::string& remedies);

/// Logs the bytes that a rank of the fullest stage will take of its device and, to load and save checkpoints, of host
/// memory. A dry run logs every stage and the activations of a layer, also of a model that is refused.
/// EnvironmentError, on all ranks, where that is more than there is on any of them. Collective over the job's world.
void log_memory(const Job& job, const RunConfig& config, const model::ModelConfig& model);

/// Logs the largest memory that any rank's tensors took so far. Collective over the job's world.
void log_peak_memory(const Job& job);

}  // namespace trireme::app
