#pragma once

#include <string>
#include <vector>

#include "io/json/plan_json.hpp"
#include "src/app/commands/plan/plan_options.hpp"
#include "src/plan/search/search.hpp"
#include "src/plan/timeline.hpp"

namespace trireme::app {

using io::PlanReport;

/// Throws ConfigError with the reasons of the rejected grids if no grid was found.
void check_found(const plan::SearchResult& result);

/// Prints the ranked grids; the parts of the best grid's step, and its memory; the reasons against the others; and the
/// command that trains.
void print_text(const PlanReport& report);

/// Returns a SLURM batch file that trains with the best layout.
std::string batch_file_of(const PlanReport& report);

/// Prints the schedule of a pipeline at unit costs, and draws it if a file is named. Throws ConfigError if the schedule
/// is too large.
void show_schedule(const PlanOptions& options);

/// Draws the predicted schedule of a job, in milliseconds.
void write_schedule_svg(const std::string& path, const plan::RankedGrid& grid);

/// Writes the predicted schedule of the first rank of every stage in the format of `train --trace-file`.
void write_predicted_trace(const std::string& path, const plan::RankedGrid& grid);

/// Returns how a trace written by `train` differs from the prediction, the largest difference first. Throws ConfigError
/// for a trace of another grid, DataError with the file's name if it is not a trace.
std::vector<plan::EventDifference> compare_with(const std::string& path, const plan::RankedGrid& grid);

/// Prints the largest differences.
void print_comparison(const std::string& path, const std::vector<plan::EventDifference>& rows);

/// Predicts the published runs of the CSV file at `path` and prints them: a line of JSON for each, or a table followed
/// by the errors by source. Reports bad rows on stderr and continues. Returns the exit code, that of bad data if any
/// row is bad. Throws IoError if the file cannot be read, DataError if it is not such a table.
int run_cases(const std::string& path, bool json);

}  // namespace trireme::app
