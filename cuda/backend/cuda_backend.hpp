#pragma once

#include <memory>
#include <string>

#include "src/backend/backend.hpp"

namespace trireme::cuda {

/// Backend on this rank's GPU, which also implements DeviceCommunicators. Supports fp32, bf16 and fp16. `built_for` are
/// the architectures of the kernels. Throws CudaError if there is no GPU, BackendUnavailable if the kernels do not run
/// on it.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, const std::string& built_for);

}  // namespace trireme::cuda
