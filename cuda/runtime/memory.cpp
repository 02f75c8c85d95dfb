#include "cuda/runtime/memory.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#include <vector>

#include "src/base/check.hpp"

namespace trireme::cuda {

constexpr std::size_t min_block_bytes = 256;  // empty tensors need an address, too

void DeviceMemory::Count::add(std::size_t size_bytes) {
  const std::size_t total = now += size_bytes;
  std::size_t seen = peak;
  while (total > seen && !peak.compare_exchange_weak(seen, total)) {
  }
}

DeviceMemory::DeviceMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device_->location().device;
  cudaMemPool_t pool = nullptr;
  device_->check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  pool_->reset(pool);
  // Without this the pool returns its memory to the driver at every synchronization.
  std::uint64_t keep_everything = UINT64_MAX;
  device_->check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_everything),
                 "cudaMemPoolSetAttribute");
}

void DeviceMemory::check_allocation(cudaError_t status, const char* call, std::size_t size_bytes) const {
  if (status != cudaErrorMemoryAllocation) return device_->check(status, call);
  cudaGetLastError();  // clears the error, which is not one of a later launch
  const Info memory = info();
  throw EnvironmentError(
      "no GPU memory left for {} MiB: {} MiB of {} MiB are free, this rank holds {} MiB; {}. Use more tensor or "
      "pipeline ranks, a smaller micro-batch, or recomputation",
      size_bytes >> 20, memory.free >> 20, memory.total >> 20, count_->now >> 20, to_string(device_->location()));
}

Buffer DeviceMemory::allocate(std::size_t size_bytes) {
  const auto allocate = [](void** data, std::size_t bytes) { return cudaMalloc(data, bytes); };
  return allocate_by({"cudaMalloc", allocate, [](void* data) { cudaFree(data); }}, size_bytes);
}

Buffer DeviceMemory::allocate_by(const Functions& functions, std::size_t size_bytes) {
  const std::size_t taken = std::max(size_bytes, min_block_bytes);
  void* data = nullptr;
  cudaError_t status = functions.allocate(&data, taken);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which is not one of a later launch
    // The pool caches freed scratch memory, most of it from the choice of algorithms.
    device_->check(cudaMemPoolTrimTo(pool_->get(), 0), "cudaMemPoolTrimTo");
    status = functions.allocate(&data, taken);
  }
  check_allocation(status, functions.call, taken);
  count_->add(taken);
  return {static_cast<std::byte*>(data), size_bytes,
          [device = device_, count = count_, taken, free = functions.free](std::byte* pointer) {
            if (std::uncaught_exceptions() > 0) device->abandon_unless_complete();
            free(pointer);
            count->now -= taken;
          }};
}

Buffer DeviceMemory::allocate_on(CudaStream& stream, std::size_t size_bytes) {
  const std::size_t taken = std::max(size_bytes, min_block_bytes);
  void* data = nullptr;
  check_allocation(cudaMallocFromPoolAsync(&data, taken, pool_->get(), stream.handle()), "cudaMallocFromPoolAsync",
                   taken);
  count_->add(taken);
  return {static_cast<std::byte*>(data), size_bytes,
          [count = count_, pool = pool_, handle = stream.handle(), taken](std::byte* pointer) {
            cudaFreeAsync(pointer, handle);
            count->now -= taken;
          }};
}

DeviceMemory::Info DeviceMemory::info() const {
  Info info;
  device_->check(cudaMemGetInfo(&info.free, &info.total), "cudaMemGetInfo");
  return info;
}

/// All blocks and their sizes, by address, and the free ones by size.
struct PinnedMemory::Cache {
  std::map<std::uintptr_t, std::size_t> blocks;
  std::map<std::size_t, std::vector<void*>> free_blocks;
  std::size_t reserved_bytes = 0;
  ~Cache() { release(); }
  void release() {
    for (const auto& [size, freed] : free_blocks) {
      for (void* block : freed) {
        cudaFreeHost(block);
        blocks.erase(reinterpret_cast<std::uintptr_t>(block));
        reserved_bytes -= size;
      }
    }
    free_blocks.clear();
  }
};

PinnedMemory::PinnedMemory(std::shared_ptr<Device> device)
    : device_(std::move(device)), cache_(std::make_shared<Cache>()) {}

Buffer PinnedMemory::allocate(std::size_t size_bytes) {
  // Powers of two, for reuse of blocks; large blocks are rounded up less.
  constexpr std::size_t min_bytes = 4096, large = std::size_t{64} << 20;
  const std::size_t taken =
      size_bytes <= large ? std::bit_ceil(std::max(size_bytes, min_bytes)) : (size_bytes + large - 1) / large * large;
  std::vector<void*>& blocks = cache_->free_blocks[taken];
  void* data = nullptr;
  if (blocks.empty()) {
    const cudaError_t status = cudaHostAlloc(&data, taken, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw EnvironmentError("no pinned host memory left for {} MiB; this rank holds {} MiB; {}", taken >> 20,
                             cache_->reserved_bytes >> 20, to_string(device_->location()));
    }
    device_->check(status, "cudaHostAlloc");
    cache_->reserved_bytes += taken;
    cache_->blocks[reinterpret_cast<std::uintptr_t>(data)] = taken;
  } else {
    data = blocks.back();
    blocks.pop_back();
  }
  return {static_cast<std::byte*>(data), size_bytes,
          [cache = cache_, taken](std::byte* pointer) { cache->free_blocks[taken].push_back(pointer); }};
}

bool PinnedMemory::owns(const void* data) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto behind = cache_->blocks.upper_bound(address);
  return behind != cache_->blocks.begin() && address - std::prev(behind)->first < std::prev(behind)->second;
}

void PinnedMemory::release() { cache_->release(); }

std::size_t PinnedMemory::reserved_bytes() const { return cache_->reserved_bytes; }

}  // namespace trireme::cuda
