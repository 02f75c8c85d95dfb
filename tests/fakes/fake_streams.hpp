#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/timeline.hpp"

// Shared parts of the fake CUDA runtime: streams, events, and work under recording.

namespace fake_cuda {

/// A piece of work. It may begin when `ready` returns true.
struct Item {
  std::string name;
  std::function<bool()> ready;
  std::function<void()> run;
  Demand demand = {};
  std::vector<std::int64_t> after = {};  // pieces of other streams, by their numbers in the trace
  bool is_end = false;                   // ends the piece before it, which has left the hardware queue
  std::int64_t turn = 0;                 // place among all pieces, in the order of the host's calls
  cudaEvent_t awaited = nullptr;         // in a graph: its last recording before each launch precedes the piece
};

/// Work of a capture: pieces, each of which comes after others. Those of one captured stream make a line.
struct Capture {
  struct Node {
    Item item;
    int line;  // number of its stream
    int priority;
    std::vector<std::size_t> after;  // nodes
  };
  cudaStream_t origin = nullptr;  // null when the capture is over
  bool valid = true;
  std::vector<Node> nodes;
  std::vector<void*> memory;  // that of cudaMallocFromPoolAsync: the graph's own
  Capture() = default;
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
};

}  // namespace fake_cuda

struct CUevent_st {
  int recorded = 0;  // number of times it was enqueued
  int passed = 0;
  bool captured = false;  // it was recorded last in a capture: as its node
  std::weak_ptr<fake_cuda::Capture> capture;
  std::size_t node = 0;
  std::int64_t place = -1;  // in the trace
};
struct CUstream_st {
  int number = 0;
  int priority = 0;
  bool slow = false;   // runs only where no other can
  int connection = 0;  // its hardware queue
  std::deque<fake_cuda::Item> queue;
  std::shared_ptr<fake_cuda::Capture> capture;  // capture in progress, or null
  std::size_t last_node = 0;
  std::int64_t place = -1;  // number in the trace of its latest piece
};

namespace fake_cuda {

/// Makes a stream, which nothing destroys but cudaStreamDestroy.
cudaStream_t make_stream(int priority);
/// The hardware queue of the stream with this number: one of 32 in turn, as with CUDA_DEVICE_MAX_CONNECTIONS=32. Pieces
/// leave a queue in the order of the host's calls, and run on until they end. One that cannot begin blocks those of
/// other streams after it.
int connection_of(int stream);
/// Puts an item on a stream, or into the capture of the stream, if any.
void push(cudaStream_t stream, Item item);
/// Adds a piece to the trace, if there is one: after `before` on its stream. Returns its number, or -1.
std::int64_t trace(const Item& item, int stream, int priority, std::int64_t before);
/// Adds a node to the capture of `stream`, after its latest node and those of `others`.
void push_captured(cudaStream_t stream, Item item, std::vector<std::size_t> others = {});
/// The streams that are run; they include those of graphs under way.
std::vector<cudaStream_t>& streams();
/// Returns an error if an active capture forbids the call, which invalidates the capture.
cudaError_t refuse_in_capture();
/// Returns the error that a test set, or that of a broken device.
cudaError_t outcome(const char* function);
class GuardedHeap;
/// Returns the GPU's memory if it is separate from the host's, else null.
GuardedHeap* guarded_heap();
/// Allocates and frees memory of the GPU.
void* allocate(std::size_t size_bytes);
void release(void* pointer);
/// Enqueues a piece that fills guarded memory with NaN.
void push_poison(cudaStream_t stream, void* to, std::size_t size_bytes);

}  // namespace fake_cuda

// Returns the error that a test set, if any.
#define FAKE_OUTCOME(function) \
  if (const cudaError_t status = fake_cuda::outcome(function); status != cudaSuccess) return status
// Returns that error, or the one of a call that is forbidden while work is recorded.
#define FAKE_OUTCOME_OUTSIDE_CAPTURE(function) \
  FAKE_OUTCOME(function);                      \
  if (const cudaError_t status = fake_cuda::refuse_in_capture(); status != cudaSuccess) return status
