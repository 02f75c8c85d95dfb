#pragma once

#include "src/app/job.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::app {

/// Throws EnvironmentError, on all ranks, where the model needs more memory than all of them have together. This is
/// arithmetic that takes no time and no memory. `remedies` lower the need. Without an `optimizer` the model is not
/// trained. Collective over the job's world.
void check_min_memory(const Job& job, const model::ModelConfig& config, const train::ExecutionConfig& execution,
                      const std::optional<optim::OptimizerOptions>& optimizer, const std::string& remedies);

/// Logs what the ranks of every stage will take of their devices and, to load and save checkpoints, of host memory.
/// EnvironmentError, on all ranks, where that is more than there is on any of them. Collective over the job's world.
void log_memory(const Job& job, const RunConfig& config, const model::ModelConfig& model);

/// Logs what a layer keeps for backward, beside the figures of the literature.
void log_layer_activations(const Job& job, const RunConfig& config, const model::ModelConfig& model);

/// Logs the largest memory that any rank's tensors took so far. Collective over the job's world.
void log_peak_memory(const Job& job);

}  // namespace trireme::app
