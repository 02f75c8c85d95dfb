// The CUDA backend's library on fakes of the CUDA libraries, for the program where there is no GPU.
#include "cuda/runtime/inventory.hpp"
#include "tests/cuda/gpu_backend.hpp"

namespace {

trireme::Backend* make_backend(const trireme::BackendOptions& options, std::string* reason) {
  try {
    return trireme::test::make_gpu_backend(options).release();
  } catch (const trireme::Error& error) {
    *reason = error.what();
    return nullptr;
  }
}

}  // namespace

extern "C" const trireme::CudaExports trireme_cuda = {TRIREME_VERSION, &make_backend, &trireme::cuda::take_inventory,
                                                      "none"};
