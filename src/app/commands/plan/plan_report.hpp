#pragma once

#include <string>
#include <vector>

#include "io/json/plan_json.hpp"
#include "src/plan/search/search.hpp"

namespace trireme::app {

using io::PlanReport;

/// Throws ConfigError with the reasons of the rejected grids if no grid was found.
void check_found(const plan::SearchResult& result);

/// Prints the ranked grids; the parts of the best grid's step, and its memory; the reasons against the others; and the
/// command that trains.
void print_text(const PlanReport& report);

/// Returns a SLURM batch file that trains with the best layout.
std::string batch_file_of(const PlanReport& report);

}  // namespace trireme::app
