#pragma once

#include "src/app/job/job.hpp"
#include "src/app/run_config/run_config.hpp"

namespace trireme::app {

/// Compares small cases of the GPU's kernels with the CPU's on every rank, unless `config` switches it off; nothing on
/// the CPU. Fused products that are wrong are replaced by their parts, with a warning of the rank. Throws
/// EnvironmentError if a kernel is wrong. Collective.
void test_kernels(Job& job, const RunConfig& config);

}  // namespace trireme::app
