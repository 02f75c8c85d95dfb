#pragma once

#include <cuda_runtime_api.h>

#include "cuda/gpu/launch.hpp"

namespace trireme {
class Stream;
}

namespace trireme::cuda {

/// Checks a launch of `kernel`, and asks for its shared memory. Returns the stream to enqueue it on. Throws CudaError,
/// and ConfigError as gpu::check_launch does.
cudaStream_t prepare_launch(Stream& stream, const gpu::Launch& launch, const void* kernel);

/// Must be called after the launch. Throws as Device::launched does.
void finish_launch(Stream& stream, const gpu::Launch& launch);

}  // namespace trireme::cuda
