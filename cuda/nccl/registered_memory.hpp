#pragma once

#include <memory>

#include "cuda/nccl/nccl_handle.hpp"

namespace trireme::cuda {

/// How the loaded NCCL can register the buffers of a communicator.
enum class BufferRegistration {
  none,    ///< not at all
  local,   ///< by ncclCommRegister, from version 2.26 on
  window,  ///< as a window of symmetric memory, by ncclCommWindowRegister, from version 2.27 on; else as `local`
};
BufferRegistration buffer_registration();

/// Memory that the kernels of a communicator read and write in place, without NCCL's own buffers: allocated by
/// ncclMemAlloc and registered with the communicator. Freeing it waits for the GPU.
class RegisteredMemory final : public Allocator {
 public:
  /// buffer_registration() is not `none`. Buffers may outlive this object, and keep the communicator.
  RegisteredMemory(std::shared_ptr<NcclHandle> group, std::shared_ptr<DeviceMemory> memory)
      : group_(std::move(group)), memory_(std::move(memory)) {}

  /// Collective: all ranks of the group allocate as many bytes, in the same order. Throws EnvironmentError without
  /// enough memory, and NcclError.
  Buffer allocate(std::size_t size_bytes) override;

 private:
  std::shared_ptr<NcclHandle> group_;
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace trireme::cuda
