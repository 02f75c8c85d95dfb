#pragma once

#include <string>

namespace trireme::app {

/// Predicts the published runs of the CSV file at `path` and prints them: a line of JSON for each, or a table followed
/// by the errors by source. Reports bad rows on stderr and continues. Returns the exit code, that of bad data if any
/// row is bad. Throws IoError if the file cannot be read, DataError if it is not such a table.
int run_cases(const std::string& path, bool json);

}  // namespace trireme::app
