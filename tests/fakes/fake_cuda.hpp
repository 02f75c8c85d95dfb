#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

/// A CUDA runtime for tests without a GPU: host memory stands in for the GPU's. What is enqueued on a stream runs late,
/// when the host waits, one piece at a time, from streams drawn at random: only the order within a stream and the
/// events between streams are kept. So work that lacks a dependency sooner or later reads what is not there yet.
namespace fake_cuda {

/// Forgets streams, log and failures, and seeds the order in which streams run.
void reset(unsigned seed = 1);

/// The calls so far that enqueue, wait or allocate: "cudaMemcpyAsync stream 1".
const std::vector<std::string>& log();
void clear_log();

/// Makes the next call of this function return `status`, and do nothing; a second request applies to the call after it.
void fail_next(const std::string& function, cudaError_t status);
/// Work on a stream that was enqueued but has not run yet.
std::size_t pending();
/// Makes streams created from now on slow: they run only where no other stream can. This provokes orders that are
/// otherwise rare.
void make_slow_streams(bool slow);
/// Enqueues `work` on `stream` under `name`, as a kernel launch or a library's call would.
void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work);
/// Enqueues work that another process takes part in: `start`, and `finish` once `done` says so.
void enqueue_until(cudaStream_t stream, const std::string& name, std::function<void()> start,
                   std::function<bool()> done, std::function<void()> finish);
/// From now on kernels on the host (tests/support/gpu) are enqueued, too, and refused pointers to what they may not
/// touch; the first launch of each waits until nothing is enqueued any more.
void start_kernels_on_streams();
/// Puts a line into the log.
void note(const std::string& text);
/// Runs everything that is enqueued.
void run_all();
/// From now on every call reports this error, as after a fault inside a kernel.
void break_device(cudaError_t status);
/// How many GPUs there are, and that all copies of this process are the same one where `uuid` is.
void set_devices(int count, unsigned char uuid = 0);
/// From now on, to the end of the program, the GPU's memory is a place of its own: it holds NaN at first, the host that
/// touches it outside of what streams run ends the program with a message, and copies go between this memory and that
/// of cudaHostAlloc alone.
void guard_device_memory();
/// Returns whether copies and kernels may use this memory.
bool gpu_may_touch(const void* pointer);
/// Blocks of memory that were not given back.
int live_allocations();
/// "stream 2"
std::string name_of(cudaStream_t stream);

}  // namespace fake_cuda
