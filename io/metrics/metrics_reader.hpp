#pragma once

#include <string>

#include "src/report/run.hpp"

namespace trireme::io {

/// Reads a metrics file (`MetricsFile`) into the curves and sums of `run`, each of at most `columns` columns. The
/// newest record of a repeated iteration wins. Truncated or damaged lines are counted and skipped. Reads the file
/// twice; memory depends only on the columns. IoError if it cannot be read.
void read_metrics(const std::string& path, int columns, report::Run& run);

/// Returns whether the first lines of a file are metrics.
bool looks_like_metrics(const std::string& path);

}  // namespace trireme::io
