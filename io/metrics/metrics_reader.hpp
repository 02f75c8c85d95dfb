#pragma once

#include <string>

#include "src/report/run.hpp"

namespace trireme::io {

/// Reads a file of metrics (`MetricsFile`) into the curves and sums of `run`, each of at most `columns` columns. Of
/// iterations that are in the file several times the newest record counts. Lines that are cut short or damaged are
/// counted and left out. The file is read twice; memory depends on the columns alone. IoError where it cannot be read.
void read_metrics(const std::string& path, int columns, report::Run& run);

/// Returns whether the first lines of a file are metrics.
bool looks_like_metrics(const std::string& path);

}  // namespace trireme::io
