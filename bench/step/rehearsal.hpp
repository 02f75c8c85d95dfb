#pragma once

#include <vector>

#include "bench/step/step_rig.hpp"

namespace trireme::bench {

using namespace plan;

/// Returns all kernel calls in a step of the program, in order. The step runs without computing, on a stand-in GPU.
/// Excludes copies of samples to the device, which overlap with the kernels.
std::vector<KernelCall> rehearse(const StepCase& c);

}  // namespace trireme::bench
