#pragma once

#include <string>

#include "src/backend/cuda_library.hpp"

namespace trireme::cuda {

/// Lists the GPUs and libraries of this machine, for the rank with this number on it. Never throws: errors are part of
/// the report.
GpuReport take_inventory(int local_rank);

/// "13.0" of CUDA's 13000.
std::string cuda_version(int number);

}  // namespace trireme::cuda
