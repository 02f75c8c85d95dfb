#pragma once

#include "cuda/runtime/device.hpp"

namespace trireme::cuda {

// Calls that a profiler beside the program hears, Nsight Systems for one. Without a profiler they do nothing. NVTX is
// the header of the toolkit; it loads a profiler's library by itself.

/// cudaProfilerStart and cudaProfilerStop.
void start_profiler(const Device& device);
void stop_profiler(const Device& device);

/// Begins an NVTX range of this thread, within those that are open; ends the innermost.
void begin_range(const char* name);
void end_range();

}  // namespace trireme::cuda
