#pragma once

#include <memory>

#include "src/comm/communicator.hpp"

namespace trireme {

/// Path of messages between the memories of ranks' devices.
enum class DeviceTransport {
  nccl,   ///< from device to device, by NCCL: each rank needs its own GPU
  staged  ///< through host memory, by MPI: slow, but several ranks may share a GPU
};

/// Creates communicators for device memory: an interface of backends whose memory is not host memory.
class DeviceCommunicators {
 public:
  virtual ~DeviceCommunicators() = default;
  /// Creates a communicator on device memory for the ranks of `host`, a host-memory communicator used exclusively by
  /// it. All others are split from it. Collective over `host`. Throws EnvironmentError, with the ranks and a remedy, if
  /// they share GPUs and `transport` is nccl. Destroy it before the backend.
  virtual std::unique_ptr<Communicator> make_world(std::unique_ptr<Communicator> host, DeviceTransport transport) = 0;
};

}  // namespace trireme
