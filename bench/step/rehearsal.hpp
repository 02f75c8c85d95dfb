#pragma once

#include <vector>

#include "bench/step/step_rig.hpp"

namespace trireme::bench {

using namespace plan;

/// All calls of kernels in a step of the program, in order. The step runs without computing, on a stand-in for a GPU.
/// Copies of samples to the device are left out: they run beside the kernels, whenever samples have been read.
std::vector<KernelCall> rehearse(const StepCase& c);

}  // namespace trireme::bench
