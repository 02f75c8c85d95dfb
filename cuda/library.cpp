#include "cuda/runtime/inventory.hpp"

namespace trireme::cuda {
namespace {

Backend* make_backend(const CudaOptions&, std::string* reason) {
  *reason =
      "the CUDA backend of this version has matrix products and communication, and no kernels yet for attention, "
      "normalisation, embedding, cross entropy and the optimizer";
  return nullptr;
}

}  // namespace
}  // namespace trireme::cuda

extern "C" const trireme::CudaExports trireme_cuda = {TRIREME_VERSION, &trireme::cuda::make_backend,
                                                      &trireme::cuda::take_inventory};
