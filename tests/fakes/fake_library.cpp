// The CUDA backend's library on fakes of the CUDA libraries, for running the program without a GPU.
#include <cstdlib>
#include <map>
#include <sstream>

#include "cuda/runtime/inventory.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/cublaslt/fake_cublaslt.hpp"
#include "tests/fakes/fake_cuda.hpp"

namespace {

/// Plants the faults that the environment variable TRIREME_FAKE_FAULTS lists: "wrong bias" and "refused bias" for an
/// epilogue of cuBLASLt, "kernel norm" for a kernel, "flip 256" for a bit in a product of so many rows.
void plant_faults() {
  const char* list = std::getenv("TRIREME_FAKE_FAULTS");
  const std::map<std::string, cublasLtEpilogue_t> epilogues = {{"bias", CUBLASLT_EPILOGUE_BIAS},
                                                               {"gelu_aux_bias", CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
                                                               {"dgelu", CUBLASLT_EPILOGUE_DGELU},
                                                               {"bgradb", CUBLASLT_EPILOGUE_BGRADB}};
  fake_cublaslt::Behaviour& cublaslt = fake_cublaslt::behaviour();
  std::istringstream words(list == nullptr ? "" : list);
  for (std::string kind, name; words >> kind >> name;) {
    if (kind == "wrong") {
      cublaslt.wrong.insert(epilogues.at(name));
    } else if (kind == "refused") {
      cublaslt.cannot_fuse.insert(epilogues.at(name));
    } else if (kind == "kernel") {
      fake_cuda::spoil_kernel(name);
    } else if (kind == "flip") {
      cublaslt.flipped_rows = std::stoull(name);
    } else {
      throw trireme::ConfigError("TRIREME_FAKE_FAULTS: unknown fault {}", kind);
    }
  }
}

trireme::Backend* make_backend(const trireme::BackendOptions& options, std::string* reason) {
  try {
    plant_faults();
    return trireme::test::make_gpu_backend(options).release();
  } catch (const trireme::Error& error) {
    *reason = error.what();
    return nullptr;
  }
}

}  // namespace

extern "C" const trireme::CudaExports trireme_cuda = {TRIREME_VERSION, &make_backend, &trireme::cuda::take_inventory,
                                                      "none"};
