#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "cuda/runtime/stream.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::cuda {

/// Memory of this rank's GPU. Buffers may outlive it.
class DeviceMemory final : public Allocator {
 public:
  explicit DeviceMemory(std::shared_ptr<Device> device);

  /// Allocates long-lived memory for use on every stream; freeing it waits for the GPU. Throws EnvironmentError, with
  /// the requested and free bytes, if memory is insufficient.
  Buffer allocate(std::size_t size_bytes) override;
  /// Functions that allocate and free memory instead of cudaMalloc and cudaFree.
  struct Functions {
    const char* call;  ///< name of the first, for messages
    std::function<cudaError_t(void** data, std::size_t size_bytes)> allocate;
    std::function<void(void* data)> free;
  };
  /// `allocate` by other functions.
  Buffer allocate_by(const Functions& functions, std::size_t size_bytes);
  /// Allocates scratch memory for the work of `stream` until the buffer is released. Never waits: memory is taken from
  /// and returned to a pool in stream order. The stream must outlive the buffer.
  Buffer allocate_on(CudaStream& stream, std::size_t size_bytes);

  std::size_t allocated_bytes() const { return count_->now; }
  std::size_t peak_allocated_bytes() const { return count_->peak; }
  /// Memory of the GPU, in bytes.
  struct Info {
    std::size_t free = 0;
    std::size_t total = 0;
  };
  Info info() const;

 private:
  struct Count {
    std::atomic<std::size_t> now{0};
    std::atomic<std::size_t> peak{0};
    void add(std::size_t size_bytes);
  };
  using Pool = UniqueHandle<ObjectTraits<cudaMemPool_t, cudaMemPoolDestroy>>;

  /// Throws unless `status` is success.
  void check_allocation(cudaError_t status, const char* call, std::size_t size_bytes) const;

  std::shared_ptr<Device> device_;
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
};

/// Pinned host memory, for asynchronous copies. Allocating it stalls the GPU, so freed blocks are cached for later
/// requests of the same size. Not thread-safe.
class PinnedMemory final : public Allocator {
 public:
  explicit PinnedMemory(std::shared_ptr<Device> device);
  Buffer allocate(std::size_t size_bytes) override;
  /// Returns whether this memory was allocated here.
  bool owns(const void* data) const;
  std::size_t reserved_bytes() const;
  /// Frees the cached blocks.
  void release();

 private:
  struct Cache;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Cache> cache_;
};

}  // namespace trireme::cuda
