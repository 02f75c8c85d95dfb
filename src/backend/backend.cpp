#include "src/backend/backend.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cuda_library.hpp"

namespace trireme {

std::unique_ptr<Backend> make_backend(BackendChoice choice, int threads, std::string* reason,
                                      const BackendOptions& options) {
  std::string why = "it was asked for";
  if (choice != BackendChoice::cpu) {
    if (const CudaExports* library = open_cuda_library(why)) {
      if (Backend* backend = library->make_backend(options, &why)) return std::unique_ptr<Backend>(backend);
    }
    TRIREME_CHECK(choice == BackendChoice::automatic, BackendUnavailable,
                  "<backend> cuda: {}; use <backend> cpu, or a build with CUDA on a machine with a GPU", why);
  }
  if (reason != nullptr) *reason = why;
  return cpu::make_backend(threads);
}

KernelFamilies observed_kernels(CallObserver& observer, Backend* inner) {
  const auto observed = [&]<class Family>(Family& (Backend::*family)()) {
    return std::make_shared<Family>(observer, inner == nullptr ? nullptr : &(inner->*family)());
  };
  return {.gemm = observed(&Backend::gemm),
          .norm = observed(&Backend::norm),
          .attention = observed(&Backend::attention),
          .elementwise = observed(&Backend::elementwise),
          .embedding = observed(&Backend::embedding),
          .cross_entropy = observed(&Backend::cross_entropy),
          .optimizer = observed(&Backend::optimizer),
          .reduce = observed(&Backend::reduce),
          .rotary = observed(&Backend::rotary),
          .experts = observed(&Backend::experts)};
}

}  // namespace trireme
