#pragma once

#include "cuda/runtime/device.hpp"

namespace trireme::cuda {

// Hooks for profilers such as Nsight Systems; no-ops without one. NVTX is the toolkit's header, which loads a
// profiler's library itself.

/// cudaProfilerStart and cudaProfilerStop.
void start_profiler(const Device& device);
void stop_profiler(const Device& device);

/// Begins an NVTX range of this thread, nested in open ones; ends the innermost.
void begin_range(const char* name);
void end_range();

}  // namespace trireme::cuda
