#pragma once

#include "src/app/job/job.hpp"

namespace trireme::app {

/// Compares small cases of the GPU's kernels with the CPU's on every rank; does nothing on the CPU, and for a type that
/// the job has tested. Replaces wrong fused products by their parts, with a warning of the rank, and uses attention by
/// warp groups where it is right. Products in FP8 are tested if the run has them, in bf16. Throws EnvironmentError if a
/// kernel is wrong. Collective.
void test_kernels(Job& job, DType dtype, const DeviceOptions& device, const parallel::Fp8Options& fp8 = {});

}  // namespace trireme::app
