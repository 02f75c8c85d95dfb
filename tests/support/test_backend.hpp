#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

/// Skips the test if the backend under test has no fp64 kernels: finite differences need that precision.
#define TRIREME_NEEDS_FP64_KERNELS() \
  if (!::trireme::test::has_fp64_kernels()) GTEST_SKIP() << "CUDA kernels of fp64 are compiled for the host alone"

namespace trireme::test {

/// Makes the backend under test, which the program is linked with. `variant` must not change any bit of a result. It is
/// the number of threads of the CPU backend. For kernels on the host, 1 runs threads and blocks in order, others
/// shuffle them.
std::unique_ptr<Backend> make_backend(int variant);

/// Returns whether that backend computes in fp64.
bool has_fp64_kernels();

/// Training types of that backend.
inline std::vector<DType> kernel_types() {
  std::vector<DType> types{DType::fp32, DType::bf16, DType::fp16};
  if (has_fp64_kernels()) types.insert(types.begin(), DType::fp64);
  return types;
}

/// Its most precise type, for hand-computed cases.
inline DType exact_type() { return kernel_types().front(); }

/// Tests of kernels in each type, on two threads.
class KernelTest : public testing::TestWithParam<DType> {
 protected:
  Backend& b() { return *backend_; }
  Stream& stream() { return b().compute_stream(); }
  DType dtype() const { return GetParam(); }
  DType accumulation() const { return accumulation_type(dtype()); }
  std::unique_ptr<Backend> backend_ = make_backend(2);
};
inline std::string name_of_type(const testing::TestParamInfo<DType>& info) { return std::string(name_of(info.param)); }

}  // namespace trireme::test
