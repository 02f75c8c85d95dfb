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

/// Streams over which grouped products are spread, so that small ones share the GPU.
inline constexpr std::size_t group_streams = 4;

/// Products of linear layers by cuBLASLt, in fp32, bf16 and fp16. The first call of a shape chooses the algorithm, and
/// whether its epilogue is fused or runs in other kernels.
///
/// Counts of rows (s b) are measured in classes: rounded down to three binary digits, four classes between powers of
/// two. Products that other ranks repeat (`RepeatedProducts`) take cuBLASLt's first suggestion: each rank measures for
/// itself. The first product of a class measures the class's own count, on the first rows of its operands and copies of
/// them (TrialOperands), unless the cache file has the choice. The order of counts thus does not matter. A count for
/// which cuBLASLt refuses its class's algorithm uses cuBLASLt's first suggestion. So do products first called during
/// graph capture, and all after 256 measurements of a run.
///
/// Grouped products are cuBLASLt's too, in turn on group_streams streams, each with a workspace, which fork from the
/// caller's and join it. A product that must be measured runs before, on the caller's. The streams change no bits.
///
/// The cache file is written after 1000 consecutive products without a new shape, and at exit.
std::unique_ptr<GemmKernels> make_gemm(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory,
                                       std::unique_ptr<WorkTimer> timer, const GemmOptions& options);

}  // namespace trireme::cuda
