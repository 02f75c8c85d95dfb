#include "cuda/nccl/registered_memory.hpp"

#include <algorithm>
#include <exception>

#include "src/base/check.hpp"
#include "src/base/log.hpp"

// Headers of an older NCCL lack some of these, and so may the library at run time, whatever the headers.
#define TRIREME_NCCL_HAS_WINDOWS (NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0))
#define TRIREME_NCCL_REGISTERS (NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0))
#if TRIREME_NCCL_REGISTERS
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#endif
#if TRIREME_NCCL_HAS_WINDOWS
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#endif

namespace trireme::cuda {

#if TRIREME_NCCL_REGISTERS

BufferRegistration buffer_registration() {
  int version = 0;
  if (&ncclMemAlloc == nullptr || ncclGetVersion(&version) != ncclSuccess) return BufferRegistration::none;
  // Before 2.26 ncclMemAlloc rounds each block to the granularity recommended for multicast.
  if (version < NCCL_VERSION(2, 26, 0)) return BufferRegistration::none;
#if TRIREME_NCCL_HAS_WINDOWS
  if (&ncclCommWindowRegister != nullptr) return BufferRegistration::window;
#endif
  return &ncclCommRegister == nullptr ? BufferRegistration::none : BufferRegistration::local;
}

namespace {

/// A registration of a buffer with its communicator.
class Registered {
 public:
  Registered(std::shared_ptr<NcclHandle> group, void* data, std::size_t size_bytes) : group_(std::move(group)) {
#if TRIREME_NCCL_HAS_WINDOWS
    if (buffer_registration() == BufferRegistration::window) {
      group_->run("ncclCommWindowRegister", [&] {
        return ncclCommWindowRegister(group_->handle(), data, size_bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
      });
      if (window_ != nullptr || &ncclCommRegister == nullptr) return;
    }
#endif
    group_->run("ncclCommRegister",
                [&] { return ncclCommRegister(group_->handle(), data, size_bytes, &registration_); });
  }
  /// While an exception unwinds, the communicator is aborted, which ends its registrations.
  void end() {
    if (std::uncaught_exceptions() > 0) return group_->shared_device()->abandon();
    if (!group_->is_alive()) return;
    group_->stream().synchronize();
#if TRIREME_NCCL_HAS_WINDOWS
    if (window_ != nullptr) {
      group_->run("ncclCommWindowDeregister", [&] { return ncclCommWindowDeregister(group_->handle(), window_); });
    }
#endif
    if (registration_ != nullptr) {
      group_->run("ncclCommDeregister", [&] { return ncclCommDeregister(group_->handle(), registration_); });
    }
  }

 private:
  std::shared_ptr<NcclHandle> group_;
#if TRIREME_NCCL_HAS_WINDOWS
  ncclWindow_t window_ = nullptr;  // also null if the group has no symmetric memory
#endif
  void* registration_ = nullptr;
};

}  // namespace

Buffer RegisteredMemory::allocate(std::size_t size_bytes) {
  // A window's size is a multiple of 4096 bytes (NCCL_WIN_REQUIRED_ALIGNMENT).
  constexpr std::size_t page_bytes = 4096;
  const std::size_t taken = (std::max<std::size_t>(size_bytes, 1) + page_bytes - 1) / page_bytes * page_bytes;
  const auto take = [&](void** data, std::size_t bytes) {
    const ncclResult_t status = ncclMemAlloc(data, bytes);
    if (status == ncclSuccess) return cudaSuccess;
    TRIREME_CHECK(memory_->info().free < bytes, NcclError, "ncclMemAlloc of {} MiB failed: {}; {}", bytes >> 20,
                  ncclGetErrorString(status), to_string(group_->device().location()));
    return cudaErrorMemoryAllocation;
  };
  // Unlike cudaFree, ncclMemFree does not wait for the GPU.
  const auto free = [](void* data) {
    cudaDeviceSynchronize();
    ncclMemFree(data);
  };
  auto memory = std::make_shared<Buffer>(memory_->allocate_by({"ncclMemAlloc", take, free}, taken));
  auto registered = std::make_shared<Registered>(group_, memory->data(), taken);
  return {memory->data(), size_bytes, [memory, registered](std::byte*) mutable {
            try {
              registered->end();
            } catch (const Error& error) {
              log::error("a buffer's registration did not end in order: {}", error.what());
            }
            memory.reset();
            registered.reset();
          }};
}

#else

BufferRegistration buffer_registration() { return BufferRegistration::none; }
Buffer RegisteredMemory::allocate(std::size_t size_bytes) { return memory_->allocate(size_bytes); }

#endif

}  // namespace trireme::cuda
