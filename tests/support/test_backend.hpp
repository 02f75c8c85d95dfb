#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

/// Skips the test where the backend under test has no kernels of fp64: finite differences need their digits.
#define TRIREME_NEEDS_FP64_KERNELS() \
  if (!::trireme::test::has_fp64_kernels()) GTEST_SKIP() << "CUDA kernels of fp64 are compiled for the host alone"

namespace trireme::test {

/// The backend that a program of kernel tests is linked with. Makes the backend under test. `variant` must not change
/// any bit of a result. For the CPU backend it is the number of threads. For kernels on the host 1 runs threads and
/// blocks as numbered, others in other orders.
std::unique_ptr<Backend> make_backend(int variant);

/// Returns whether that backend computes in fp64.
bool has_fp64_kernels();

/// Training types of that backend.
inline std::vector<DType> kernel_types() {
  std::vector<DType> types{DType::fp32, DType::bf16, DType::fp16};
  if (has_fp64_kernels()) types.insert(types.begin(), DType::fp64);
  return types;
}

/// Its most exact type, for cases worked by hand.
inline DType exact_type() { return kernel_types().front(); }

}  // namespace trireme::test
