#pragma once

#include <memory>
#include <string>

#include "src/comm/communicator.hpp"

namespace trireme {

/// Path of messages between the memories of ranks' devices.
enum class DeviceTransport {
  nccl,   ///< from device to device, by NCCL: each rank needs a GPU of its own
  staged  ///< through host memory, by MPI: slow, but several ranks may share a GPU
};

/// Makes communicators for the memory of a device: an interface of backends whose memory is not host memory.
class DeviceCommunicators {
 public:
  virtual ~DeviceCommunicators() = default;
  /// A communicator for the memory of the ranks' devices, over the ranks of `host`, which works on host memory and
  /// serves this one alone. All others are split from it. Collective over `host`. Throws EnvironmentError, with the
  /// ranks and a remedy, where they share GPUs and `transport` is NCCL's. To be destroyed before the backend.
  virtual std::unique_ptr<Communicator> make_world(std::unique_ptr<Communicator> host, DeviceTransport transport) = 0;
};

}  // namespace trireme
