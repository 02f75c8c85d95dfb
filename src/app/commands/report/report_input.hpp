#pragma once

#include <string>
#include <vector>

#include "src/report/run.hpp"

namespace trireme::app {

/// Reads the runs at `paths` (run folders, files of metrics, folders of checkpoints) for the page `output`, which may
/// be empty. Throws ConfigError if `output` is one of their files or a run is given twice, DataError or IoError if a
/// run cannot be read or has nothing to show.
std::vector<report::Run> read_runs(const std::vector<std::string>& paths, const std::string& output);

/// Returns a text of the sizes and times of files and folders: it changes with them. Missing ones are allowed.
std::string stamp_of(const std::vector<std::string>& sources);

}  // namespace trireme::app
