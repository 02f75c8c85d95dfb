#pragma once

#include <string>

namespace trireme::app {

/// Predicts the published runs of the CSV file at `path` and prints them: a line of JSON for each, or a table and at
/// its end the errors by source. Rows that are no runs are errors on stderr, and the others go on. Returns the exit
/// code: that of bad data where a row is bad. IoError if the file cannot be read, DataError if it is no such
/// table.
int run_cases(const std::string& path, bool json);

}  // namespace trireme::app
