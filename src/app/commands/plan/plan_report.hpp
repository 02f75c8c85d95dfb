#pragma once

#include <string>
#include <vector>

#include "io/json/plan_json.hpp"
#include "src/plan/search/search.hpp"

namespace trireme::app {

using io::PlanReport;

/// Throws ConfigError, with the grids that were rejected, where no grid was found.
void check_found(const plan::SearchResult& result);

/// Prints the ranked grids, the parts of the best one's step, its memory, the reasons for the others, and the command
/// that trains.
void print_text(const PlanReport& report);
void print_json(const PlanReport& report);

/// Returns a SLURM batch file that trains with the best layout.
std::string batch_file_of(const PlanReport& report);

/// Prints the constants of the cost model, with their sources.
void print_constants();

}  // namespace trireme::app
