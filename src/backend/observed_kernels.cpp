#include "src/backend/backend.hpp"

namespace trireme {

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
          .rotary = observed(&Backend::rotary)};
}

}  // namespace trireme
