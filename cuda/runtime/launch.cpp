#include "cuda/runtime/launch.hpp"

#include "cuda/gpu/check_launch.hpp"
#include "cuda/runtime/stream.hpp"

namespace trireme::cuda {

cudaStream_t prepare_launch(Stream& stream, const gpu::Launch& launch, const void* kernel) {
  CudaStream& on = cuda_stream(stream);
  gpu::check_launch(launch, on.device().shared_bytes_of_block());
  if (launch.shared_bytes > gpu::shared_bytes_unasked) {
    on.device().check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(launch.shared_bytes)),
                      "cudaFuncSetAttribute");
  }
  return on.handle();
}

void finish_launch(Stream& stream, const gpu::Launch& launch) {
  CudaStream& on = cuda_stream(stream);
  on.device().launched(on.handle(), launch.kernel);
}

}  // namespace trireme::cuda
