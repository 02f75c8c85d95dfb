#pragma once

#include "src/app/commands/plan/plan_options.hpp"

namespace trireme::app {

/// Prints the schedule of a pipeline at unit costs, and draws it where a file is named. ConfigError if the schedule
/// is too large to be shown.
void show_schedule(const PlanOptions& options);

/// Throws ConfigError if a schedule, a list in memory and a table on the screen, would be too large.
void check_schedule_size(int stages, int chunks, int micro_batches);

}  // namespace trireme::app
