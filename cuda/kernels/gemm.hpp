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
  std::string cache_file;  ///< keeps what was chosen by time; empty: nothing is kept
};

/// Products of linear layers by cuBLASLt, in fp32, bf16 and fp16. How a product of some shape is computed, by which
/// algorithm and with its epilogue fused or in kernels of its own, is decided at its first call by the time each way
/// takes on the real operands, unless the cache file knows.
std::unique_ptr<GemmKernels> make_gemm(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory,
                                       std::unique_ptr<WorkTimer> timer, const GemmOptions& options);

}  // namespace trireme::cuda
