#pragma once

#include <memory>
#include <string>

#include "src/backend/backend.hpp"

namespace trireme::cuda {

/// Backend on this rank's GPU, which also implements DeviceCommunicators. Supports fp32, bf16 and fp16. `built_for` are
/// the architectures of the kernels. Throws CudaError if there is no GPU, BackendUnavailable if the kernels do not run
/// on it.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, const std::string& built_for);

/// Returns the reason why kernels do not run on a GPU of compute capability `capability` (90 for 9.0); empty if they
/// do. `built_for` is CMake's list of their architectures with commas ("80-real,90"). Code for X.Y runs on X.Z with Z
/// >= Y, code for X.Ya on X.Y alone. An entry that does not end in "-real" also has PTX. PTX for X.Y runs on all GPUs
/// from X.Y on, PTX for X.Ya on X.Y alone.
std::string architecture_problem(const std::string& built_for, int capability);

}  // namespace trireme::cuda
