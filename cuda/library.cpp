#include "cuda/runtime/inventory.hpp"

namespace trireme::cuda {
namespace {

Backend* make_backend(const CudaOptions&, std::string* reason) {
  *reason =
      "the CUDA backend of this version has matrix products, kernels and communication, which are not joined to "
      "training "
      "yet";
  return nullptr;
}

}  // namespace
}  // namespace trireme::cuda

extern "C" const trireme::CudaExports trireme_cuda = {TRIREME_VERSION, &trireme::cuda::make_backend,
                                                      &trireme::cuda::take_inventory};
