#pragma once

#include "bench/sass/paths.hpp"

namespace trireme::sass {

// Model of a multiprocessor of compute capability 9.0, for bounds that need no GPU. Each resource works without pause
// and beside the others; a path takes as long as the one that it keeps busiest. Latencies, bank conflicts, the width of
// integer units and waiting at barriers are left out, so a kernel is at most as fast.

/// Four schedulers each issue one warp instruction a cycle, and shared memory passes 128 bytes a cycle. (CUDA C++
/// Programming Guide 13.0, "Compute Capability 9.x".)
constexpr double schedulers = 4;
/// Cycles of a warp's special function: 16 results a cycle for a multiprocessor, four for a scheduler. (The same,
/// "Arithmetic Instructions".)
constexpr double special_cycles = 32 / (16 / schedulers);
/// Multiply-adds a cycle of the tensor core of one scheduler, dense, 16 bits. 132 multiprocessors at 1.83 GHz make 989
/// TFLOP/s, the peak of the H100 SXM in NVIDIA's data sheet.
constexpr double tensor_rate = 512;
/// Assumed share of that peak that mma.sync reaches. Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
/// Architecture" (arXiv 2402.13499), find that wgmma alone reaches the peak.
constexpr double mma_sync_share = 0.62;
/// Bytes a cycle that memory moves for one multiprocessor: 4.8 TB/s of the H200's data sheet, of which a copy is
/// assumed to reach 92 %, over 132 multiprocessors at 1.83 GHz.
constexpr double copy_rate = 0.92 * 4.8e12 / 132 / 1.83e9;
/// Assumed cycles from a load to its data where memory is busy.
constexpr double load_latency = 900;

constexpr int max_threads = 2048, max_blocks = 32, register_file = 65536, max_shared_bytes = 228 << 10;

/// Blocks of `threads` threads that run on a multiprocessor at once. Registers are given out in units of 256 for a
/// warp. `shared_bytes` have 1 KiB for the system in them.
int blocks_at_once(int registers, int threads, int shared_bytes);
/// Most registers a thread with which `blocks` of `threads` threads run at once.
int most_registers(int blocks, int threads);

/// Cycles of one scheduler for one path of one of its warps, by resource.
struct Cycles {
  double issue, shared_memory, tensor, special, memory, latency;
  double longest() const;
  const char* resource() const;  ///< name of the longest
};
/// `warps` run on the multiprocessor at once.
Cycles cycles_of(const Counts& counts, int warps);

/// Bound as a share of the roofline. With tensor cores: of their peak, where `useful` of the products count. Else: of
/// the rate of a copy.
double predicted_share(const Counts& counts, const Cycles& cycles, double useful = 1);

}  // namespace trireme::sass
