#include "cuda/runtime/profiler.hpp"

#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

namespace trireme::cuda {

void start_profiler(const Device& device) { device.check(cudaProfilerStart(), "cudaProfilerStart"); }
void stop_profiler(const Device& device) { device.check(cudaProfilerStop(), "cudaProfilerStop"); }

void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

}  // namespace trireme::cuda
