#pragma once

#include "src/app/commands/train/train_plan.hpp"

namespace trireme::app {

/// Logs what the run will do: its options, grid, model, corpora, batches and memory. EnvironmentError where the memory
/// does not suffice. Collective.
void log_configuration(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan);

}  // namespace trireme::app
