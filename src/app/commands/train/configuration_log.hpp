#pragma once

#include "src/app/commands/train/train_plan.hpp"

namespace trireme::app {

/// Logs the configuration of the run in at most 25 lines: the given options, grid, model, corpora, batches, schedule
/// and memory. With --log-options it lists all options and corpora; a dry run adds the ranks of the grid and the memory
/// of every stage. Throws EnvironmentError if the memory does not suffice. Collective.
void log_configuration(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan);

}  // namespace trireme::app
