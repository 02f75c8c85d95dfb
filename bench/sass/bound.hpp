#pragma once

#include <string>
#include <vector>

#include "bench/sass/table.hpp"

namespace trireme::sass {

// Model of a multiprocessor of compute capability 9.0, for bounds that need no GPU. All resources are fully overlapped;
// a path takes as long as its busiest one. Ignores latencies, bank conflicts, the width of integer units and barrier
// waits, so it is an upper bound of the speed.

/// Four schedulers each issue one warp instruction per cycle, and shared memory transfers 128 bytes per cycle. (CUDA
/// C++ Programming Guide 13.0, "Compute Capability 9.x".)
constexpr double schedulers = 4;
/// Cycles of a warp's special function: 16 results per cycle and multiprocessor, four per scheduler. (The same,
/// "Arithmetic Instructions".)
constexpr double special_cycles = 32 / (16 / schedulers);
/// Dense 16-bit multiply-adds per cycle of one scheduler's tensor core. 132 multiprocessors at 1.83 GHz make 989
/// TFLOP/s, the peak of the H100 SXM in NVIDIA's data sheet.
constexpr double tensor_rate = 512;
/// Assumed fraction of that peak reached by mma.sync. Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
/// Architecture" (arXiv 2402.13499), find that only wgmma reaches the peak.
constexpr double mma_sync_share = 0.62;
/// Memory bytes per cycle and multiprocessor: 4.8 TB/s of the H200's data sheet, of which a copy is assumed to reach 92
/// %, over 132 multiprocessors at 1.83 GHz.
constexpr double copy_rate = 0.92 * 4.8e12 / 132 / 1.83e9;
/// Assumed load latency in cycles under load.
constexpr double load_latency = 900;

constexpr int max_threads = 2048, max_blocks = 32, register_file = 65536, max_shared_bytes = 228 << 10;

/// Resident blocks of `threads` threads per multiprocessor. Registers are allocated in units of 256 per warp.
/// `shared_bytes` includes 1 KiB for the system.
int blocks_at_once(int registers, int threads, int shared_bytes);
/// Maximum registers per thread for `blocks` resident blocks of `threads` threads.
int most_registers(int blocks, int threads);

/// Cycles of one scheduler for one path of one of its warps, by resource.
struct Cycles {
  double issue, shared_memory, tensor, special, memory, latency;
  double longest() const;
  const char* resource() const;  ///< name of the longest
};
/// `warps` is the number of resident warps per multiprocessor.
Cycles cycles_of(const Counts& counts, int warps);

/// Bound as a share of the roofline. With tensor cores: of their peak, where `useful` of the products count. Else: of
/// the rate of a copy.
double predicted_share(const Counts& counts, const Cycles& cycles, double useful = 1);

/// Tables in Markdown: registers, spills, occupancy and bound of each kernel in the table, except fp16 ones, which
/// match those of bf16.
std::string report(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels);

}  // namespace trireme::sass
