#pragma once

#include <string>

namespace trireme::cuda {

/// Why kernels that were compiled for `built_for`, CMake's list of architectures with commas ("80-real,90a-real"), do
/// not run on a GPU of compute capability `capability` (90 for 9.0); empty where they do. Code for X.Y runs on X.Z with
/// Z >= Y, code for X.Ya on X.Y alone. An entry that does not end in "-real" also brings PTX, which runs on all GPUs
/// from X.Y on, that for X.Ya again on X.Y alone.
std::string architecture_problem(const std::string& built_for, int capability);

}  // namespace trireme::cuda
