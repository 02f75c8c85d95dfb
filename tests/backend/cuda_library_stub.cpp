// A library with the CUDA backend's exports and no CUDA.
#include "src/backend/cuda_library.hpp"

namespace {

trireme::Backend* make_backend(const trireme::BackendOptions&, std::string* reason) {
  *reason = "the library of the test has none";
  return nullptr;
}
trireme::GpuReport take_inventory(int) { return {}; }

}  // namespace

extern "C" const trireme::CudaExports trireme_cuda = {STUB_VERSION, &make_backend, &take_inventory, ""};
