#pragma once

#include "src/app/job/job.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::app {

/// Throws EnvironmentError on all ranks if the model needs more memory than they have in total. Pure arithmetic,
/// without allocations. `remedies` names ways to need less. Without an `optimizer` the model is not trained. Collective
/// over the job's world.
void check_min_memory(const Job& job, const model::ModelConfig& config, const train::ExecutionConfig& execution,
                      const std::optional<optim::OptimizerOptions>& optimizer, const std::string& remedies);

/// Returns a line about the load of experts that a prediction assumes.
std::string expert_load_text(const train::ParallelConfig& parallel);

/// Logs the bytes that a rank of the fullest stage will use on its device and, to load and save checkpoints, in host
/// memory. A dry run logs every stage and the activations of a layer, even of a model that does not fit. Throws
/// EnvironmentError on all ranks if any rank has less memory. Collective over the job's world.
void log_memory(const Job& job, const RunConfig& config, const model::ModelConfig& model);

/// Logs the peak memory of the tensors of any rank. Collective over the job's world.
void log_peak_memory(const Job& job);

}  // namespace trireme::app
