#pragma once

#include "src/app/commands/train/train_plan.hpp"

namespace trireme::app {

/// Logs what the run will do: the options given, its grid, model, corpora, batches, schedule and memory. It takes at
/// most 25 lines. With --log-options it lists all options and corpora, and a dry run adds the ranks of the grid and the
/// memory of every stage. EnvironmentError if the memory does not suffice. Collective.
void log_configuration(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan);

}  // namespace trireme::app
