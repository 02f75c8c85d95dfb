#include "cuda/backend/cuda_backend.hpp"
#include "cuda/runtime/inventory.hpp"
#include "src/base/error.hpp"

namespace trireme::cuda {
namespace {

Backend* make_backend_here(const BackendOptions& options, std::string* reason) {
  try {
    return make_backend(options, TRIREME_CUDA_ARCHITECTURES).release();
  } catch (const MachineError&) {
    throw;  // ends the job: another node has to replace this one
  } catch (const Error& error) {
    *reason = error.what();
    return nullptr;
  }
}

}  // namespace
}  // namespace trireme::cuda

extern "C" const trireme::CudaExports trireme_cuda = {TRIREME_VERSION, &trireme::cuda::make_backend_here,
                                                      &trireme::cuda::take_inventory, TRIREME_CUDA_ARCHITECTURES};
