#pragma once

#include <memory>
#include <string>

#include "cuda/cublaslt/choose.hpp"
#include "cuda/runtime/memory.hpp"
#include "src/backend/kernels/gemm.hpp"

namespace trireme::cuda {

struct GemmOptions {
  bool allow_tf32 = false;
  /// Take cuBLASLt's first suggestion instead of the fastest: the same bits in every run.
  bool deterministic = false;
  std::string cache_file;  ///< stores the choices made by time; empty: none
};

/// Products of linear layers by cuBLASLt, in fp32, bf16 and fp16. The first call of a shape chooses the algorithm, and
/// whether its epilogue is fused or runs in other kernels. The choice is the fastest on the operands and copies of them
/// (TrialOperands), unless the cache file has one. A call that is being recorded takes the first suggestion.
std::unique_ptr<GemmKernels> make_gemm(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory,
                                       std::unique_ptr<WorkTimer> timer, const GemmOptions& options);

}  // namespace trireme::cuda
