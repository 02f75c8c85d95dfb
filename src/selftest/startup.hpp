#pragma once

#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/selftest/kernels/trial.hpp"

namespace trireme::selftest {

/// Kernels that a run tests at its start.
struct StartupTest {
  DType dtype = DType::fp32;  ///< type in which the run computes
  bool allow_tf32 = false;    ///< fp32 products may round their inputs to TF32
  Fp8Cases fp8 = {};          ///< products in FP8
  std::string where = {};     ///< this rank, for messages: "rank 3 on host node7"
};

/// Compares small cases of every kernel family with `reference`, the CPU's backend, in about two seconds. A product
/// with a wrong fused epilogue uses a separate epilogue kernel from then on. Attention uses the products of warp groups
/// from then on where they are right. Returns warnings naming what was wrong. Throws EnvironmentError naming wrong
/// kernels.
std::vector<std::string> test_at_start(Backend& backend, Backend& reference, const StartupTest& test);

}  // namespace trireme::selftest
