#pragma once

#include <string>

#include "src/plan/search/search.hpp"

namespace trireme::app {

/// Draws the predicted schedule of a job, in milliseconds.
void write_schedule_svg(const std::string& path, const plan::RankedGrid& grid);

/// Writes the predicted schedule of the first rank of every stage as `train --trace-file` writes a measured one.
void write_predicted_trace(const std::string& path, const plan::RankedGrid& grid);

/// Prints where a trace that `train` has written differs from the prediction, the largest difference first. ConfigError
/// where it is that of another grid; DataError, with the file's name, where it is no such trace.
void print_comparison(const std::string& path, const plan::RankedGrid& grid);

}  // namespace trireme::app
