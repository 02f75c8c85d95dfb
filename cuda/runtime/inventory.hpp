#pragma once

#include <optional>
#include <string>

#include "src/backend/cuda_library.hpp"

namespace trireme::cuda {

/// What this machine has, for the rank with this number on it. Never throws: what is wrong stands in the report.
GpuReport take_inventory(int local_rank);

/// "13.0" of CUDA's 13000.
std::string cuda_version(int number);

}  // namespace trireme::cuda
