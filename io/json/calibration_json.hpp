#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/plan/cluster/calibration.hpp"

namespace trireme::io {

/// Adds the measurements in `text`, lines of JSON, to `calibration`: those of kernels_calibration and
/// kernels_gpu_bench, which have a "kernel", and of collectives_bench, which have an "operation". DataError "path:line:
/// ..." for any other line, or a field that is missing, of another type or impossible.
void add_calibration(std::string_view text, const std::string& path, plan::Calibration& calibration);

/// Reads all measurements in the files `paths`. IoError for an unreadable file.
plan::Calibration read_calibration(const std::vector<std::string>& paths);

}  // namespace trireme::io
