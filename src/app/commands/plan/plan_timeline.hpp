#pragma once

#include <string>

#include "src/app/commands/plan/plan_options.hpp"
#include "src/plan/search/search.hpp"

namespace trireme::app {

/// Prints the schedule of a pipeline at unit costs, and draws it if a file is named. Throws ConfigError if the schedule
/// is too large.
void show_schedule(const PlanOptions& options);

/// Draws the predicted schedule of a job, in milliseconds.
void write_schedule_svg(const std::string& path, const plan::RankedGrid& grid);

/// Writes the predicted schedule of the first rank of every stage in the format of `train --trace-file`.
void write_predicted_trace(const std::string& path, const plan::RankedGrid& grid);

/// Prints how a trace written by `train` differs from the prediction, the largest difference first. Throws ConfigError
/// for a trace of another grid, DataError with the file's name if it is not a trace.
void print_comparison(const std::string& path, const plan::RankedGrid& grid);

}  // namespace trireme::app
