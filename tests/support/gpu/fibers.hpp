#pragma once

#include <functional>
#include <source_location>
#include <span>

#include "cuda/gpu/launch.hpp"

namespace trireme {
class Stream;
}

namespace trireme::gpu {

/// A GPU's blocks, threads and shared memory on the host, for tests. The threads of a block are fibers of one host
/// thread: each runs until it waits at a barrier or for its warp. Blocks run one after another. Shared memory is filled
/// with NaN before every block, and has exactly its size, so that AddressSanitizer detects accesses beyond it.
namespace host {

constexpr int warp_size = 32;
/// Shared memory of a block on compute capability 8.0.
constexpr std::size_t max_shared_bytes = std::size_t{163} << 10;

/// Sets the order in which fibers and blocks run from now on: 0 as numbered, else shuffled by the seed. Kernels must
/// not depend on it.
void set_order(unsigned seed);

/// Runs `body` as every thread of every block. Throws std::logic_error, which names kernel, block, threads and source
/// lines, if a barrier or a warp's operation is not reached by all its threads. Also throws it if a block requests more
/// shared memory, static and dynamic, than exists, and passes on the exceptions of threads.
void run(const Launch& launch, const std::function<void()>& body);

/// Memory that kernels may be given pointers to from now on; without it, any. Throws std::logic_error where a kernel is
/// given another.
using Memory = std::function<bool(const void*)>;
void set_memory(Memory memory);
void check_memory(const Launch& launch, const void* pointer);

/// Handler of launches from now on: a fake of streams calls `run` in the kernel's turn. Without a handler kernels run
/// at once.
using Starter = std::function<void(Stream& stream, const Launch& launch, std::function<void()> run)>;
void set_starter(Starter starter);
/// Starts `body` as every thread of every block. Throws ConfigError as check_launch does.
void start(Stream& stream, const Launch& launch, std::function<void()> body);

/// Arguments that `combine` reads and writes: one of each thread of a warp or a warp group, in order.
using Arguments = std::span<void* const>;
/// An operation of `threads` threads together, from a multiple of as many on: the last to arrive calls `combine` for
/// all.
void collective(unsigned threads, void* argument, void (*combine)(Arguments), const std::source_location& where);
inline void warp_collective(void* argument, void (*combine)(Arguments), const std::source_location& where) {
  collective(warp_size, argument, combine, where);
}

void block_barrier(const std::source_location& where);

/// Barrier in shared memory whose phases end with the last of their arrivals.
struct PhaseBarrier {
  std::uint16_t arrivals, missing;
  std::uint32_t phase;
};
void arrive(PhaseBarrier& barrier);
/// Waits for the end of `phase`, the current one or that before.
void wait_for_phase(PhaseBarrier& barrier, unsigned phase, const std::source_location& where);

/// Throws std::logic_error unless the address is a multiple of 16, as accesses of 16 bytes require.
void check_alignment(const void* address, const std::source_location& where);

/// Shared memory of the block that runs, one piece for each `owner`.
void* shared_memory(const void* owner, std::size_t size_bytes);
void* dynamic_shared_memory();

/// The running thread's asynchronous copies, of 16 bytes. Where fibers run as numbered, a copy is made as late as
/// possible, when it is waited for. In other orders it is made at once. A kernel must not depend on it.
void copy_async(void* shared, const void* global, bool valid);
void commit_copies();
void wait_for_copies(std::size_t latest);

struct Index {
  unsigned x = 0;
};

}  // namespace host
}  // namespace trireme::gpu

/// Indices and sizes of the running thread, as in CUDA.
inline trireme::gpu::host::Index threadIdx, blockIdx, blockDim, gridDim;
