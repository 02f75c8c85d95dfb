// Memory of the fake CUDA runtime.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/fake_streams.hpp"
#include "tests/fakes/guarded_heap.hpp"

struct CUmemPoolHandle_st {};

namespace fake_cuda {
namespace {

/// Sizes of blocks, by address.
using Blocks = std::map<std::uintptr_t, std::size_t>;

/// Returns the block that contains an address: its first one and its size, 0 if none.
std::pair<std::uintptr_t, std::size_t> block_at(const Blocks& blocks, std::uintptr_t address) {
  const auto behind = blocks.upper_bound(address);
  if (behind == blocks.begin()) return {};
  const auto& [begin, size] = *std::prev(behind);
  if (address - begin >= size) return {};
  return {begin, size};
}

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Lives as long as the program: buffers may outlive a `reset`.
struct MemoryState {
  int allocations = 0;
  std::unique_ptr<GuardedHeap> heap;  // null: the GPU's memory is the host's
  Blocks device, pinned;
};
MemoryState& memory() {
  static MemoryState the_memory;
  return the_memory;
}

}  // namespace

GuardedHeap* guarded_heap() { return memory().heap.get(); }
void guard_device_memory() {
  if (!memory().heap) memory().heap = std::make_unique<GuardedHeap>();
}
bool gpu_may_touch(const void* pointer) {
  if (!memory().heap || memory().heap->contains(pointer)) return true;
  return block_at(memory().pinned, address_of(pointer)).second > 0;
}
std::pair<std::uintptr_t, std::size_t> allocation_at(std::uintptr_t address) {
  const auto block = block_at(memory().device, address);
  return block.second > 0 ? block : block_at(memory().pinned, address);
}
void* allocate(std::size_t size) {
  ++memory().allocations;
  void* block = memory().heap ? memory().heap->allocate(size) : std::aligned_alloc(256, (size + 255) / 256 * 256);
  memory().device[address_of(block)] = size;
  return block;
}
void release(void* pointer) {
  --memory().allocations;
  memory().device.erase(address_of(pointer));
  if (memory().heap && memory().heap->contains(pointer)) {
    memory().heap->free(pointer);
  } else {
    std::free(pointer);
  }
}
void push_poison(cudaStream_t stream, void* to, std::size_t size) {
  if (memory().heap) push(stream, {"poison", [] { return true; }, [to, size] { std::memset(to, 0xff, size); }});
}
int live_allocations() { return memory().allocations; }

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t size) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaMalloc");
  note(fmt::format("cudaMalloc {}", size));
  *pointer = allocate(size);
  if (memory().heap) {
    const GuardedHeap::Access access(guarded_heap());
    std::memset(*pointer, 0xff, size);
  }
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return status;
  run_all();  // waits for the device
  release(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  *free_bytes = std::size_t{1} << 30;
  *total = std::size_t{139} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  FAKE_OUTCOME("cudaMemPoolCreate");
  *pool = new CUmemPoolHandle_st;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  FAKE_OUTCOME("cudaMemPoolTrimTo");
  note("cudaMemPoolTrimTo");
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t size, cudaMemPool_t, cudaStream_t stream) {
  FAKE_OUTCOME("cudaMallocFromPoolAsync");
  note(fmt::format("cudaMallocFromPoolAsync {} {}", size, name_of(stream)));
  *pointer = allocate(size);
  if (stream->capture != nullptr) stream->capture->memory.push_back(*pointer);
  push_poison(stream, *pointer, size);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (stream->capture != nullptr) {
    // A graph's memory is its own until it is destroyed; that of others it cannot free.
    const auto& memory = stream->capture->memory;
    if (std::find(memory.begin(), memory.end(), pointer) != memory.end()) return cudaSuccess;
    refuse_in_capture();
    return cudaErrorInvalidValue;
  }
  enqueue(stream, "cudaFreeAsync", [pointer] { release(pointer); });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaHostAlloc");
  note(fmt::format("cudaHostAlloc {}", size));
  *pointer = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  memory().pinned[address_of(*pointer)] = size;
  ++memory().allocations;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  memory().pinned.erase(address_of(pointer));
  std::free(pointer);
  --memory().allocations;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream) {
  FAKE_OUTCOME("cudaMemsetAsync");
  enqueue(stream, "cudaMemsetAsync", [to, value, size] { std::memset(to, value, size); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind, cudaStream_t stream) {
  FAKE_OUTCOME("cudaMemcpyAsync");
  if (!gpu_may_touch(to) || !gpu_may_touch(from)) return cudaErrorInvalidValue;
  enqueue(stream, "cudaMemcpyAsync", [to, from, size] { std::memcpy(to, from, size); });
  return cudaSuccess;
}

}  // extern "C"
