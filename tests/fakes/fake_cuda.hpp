#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/timeline.hpp"

/// A CUDA runtime for tests without a GPU: host memory replaces the GPU's. Work enqueued on a stream runs late, when
/// the host waits, one piece at a time, from streams drawn at random. Only the order within a stream and the events
/// between streams are kept. So work that lacks a dependency eventually reads unwritten data.
namespace fake_cuda {

/// Forgets streams, log and failures, and seeds the order in which streams run.
void reset(unsigned seed = 1);

/// The calls so far that enqueue, wait or allocate: "cudaMemcpyAsync stream 1".
const std::vector<std::string>& log();
void clear_log();

/// Makes the next call of this function return `status`, and do nothing; a second request applies to the call after it.
void fail_next(const std::string& function, cudaError_t status);
/// Time between any two events, so long that measurements are short of repetitions. While work is traced it is that of
/// the model of a GPU's multiprocessors (timeline.hpp).
inline constexpr float event_distance_ms = 200;
/// Number of pieces of work that are enqueued but have not run yet.
std::size_t pending();
/// Runs one piece of work that can run, if any.
void run_next();
/// Makes streams created from now on slow: they run only if no other stream can. This provokes orders that are
/// otherwise rare.
void make_slow_streams(bool slow);
/// Waits until all that is enqueued has run, at the first call with this name: CUDA loads a kernel at its first launch,
/// for which it may wait until the GPU is idle.
void load_kernel(const std::string& name);
/// Forgets which kernels are loaded.
void unload_kernels();
/// Enqueues `work` on `stream` under `name`, as a kernel launch or a library's call would.
void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work, const Demand& demand = {});
/// Enqueues work shared with another process: `start`, and `finish` after `done` returns true.
void enqueue_until(cudaStream_t stream, const std::string& name, std::function<void()> start,
                   std::function<bool()> done, std::function<void()> finish, const Demand& demand = {});
/// Enqueues kernels on the host (tests/support/gpu), too, from now on, and refuses them pointers to memory that they
/// must not access. No kernel is loaded at first.
void start_kernels_on_streams();
/// Makes this kernel on the host wrong from now on, in the first element of the last tensor that it is given; "": none.
void spoil_kernel(const std::string& name);
/// Puts a line into the log.
void note(const std::string& text);
/// Runs everything that is enqueued.
void run_all();
/// Number of times so far that the host waited for all work, or queried unfinished work.
int waits();
/// Least number of pieces of work that were enqueued when a wait of the host ended, since the last call of this
/// function: 0 if the GPU was idle until the host went on.
std::size_t take_least_left();
/// Makes every call report this error from now on, as after a fault inside a kernel.
void break_device(cudaError_t status);
/// Sets the number of GPUs. Copies of this process with the same `uuid` have the same GPUs.
void set_devices(int count, unsigned char uuid = 0);
/// Compute capability and attributes of all GPUs; at first those of an H200.
struct Properties {
  int major = 9, minor = 0;
  std::map<cudaDeviceAttr, int> attributes = {{cudaDevAttrMultiProcessorCount, multiprocessors},
                                              {cudaDevAttrClockRate, 1980000},
                                              {cudaDevAttrMemoryClockRate, 3201000},
                                              {cudaDevAttrGlobalMemoryBusWidth, 6144}};
};
Properties& properties();
/// Separates the GPU's memory from the host's, until the end of the program. It holds NaN at first. An access of the
/// host outside the work of streams ends the program with a message. Copies go only between this memory and that of
/// cudaHostAlloc.
void guard_device_memory();
/// Returns whether copies and kernels may use this memory.
bool gpu_may_touch(const void* pointer);
/// Returns the start and the size in bytes of the GPU's or pinned block that contains the address; size 0: none.
std::pair<std::uintptr_t, std::size_t> allocation_at(std::uintptr_t address);
/// Number of blocks of memory that were not freed.
int live_allocations();
/// "stream 2"
std::string name_of(cudaStream_t stream);

}  // namespace fake_cuda
