#include <cuda_runtime_api.h>

#include "cuda/backend/cuda_backend.hpp"
#include "cuda/runtime/error.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::test {

std::string gpu_problem() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  return status == cudaSuccess && count > 0 ? "" : "no GPU: " + cuda::reason_of(status);
}
bool is_real_gpu() { return true; }
bool ranks_share_gpus() { return std::getenv("NCCL_HOSTID") != nullptr; }
bool have_gpus(int count) {
  if (ranks_share_gpus()) return true;
  int visible = 0;
  return cudaGetDeviceCount(&visible) == cudaSuccess && visible >= count;
}
void slow_new_streams(bool /*slow*/) {}
std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options) {
  // The tests of a process measure each product once.
  static const TemporaryDirectory folder;
  BackendOptions with_cache = options;
  if (options.algorithm_cache.empty()) with_cache.algorithm_cache = folder / "algorithms";
  return cuda::make_backend(with_cache, TRIREME_CUDA_ARCHITECTURES);
}

}  // namespace trireme::test
