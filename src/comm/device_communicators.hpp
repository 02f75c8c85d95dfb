#pragma once

#include <memory>
#include <string>

#include "src/comm/communicator.hpp"

namespace trireme {

/// How ranks pass on what is in the memory of their devices.
enum class DeviceTransport {
  nccl,   ///< from device to device, by NCCL: each rank needs a GPU of its own
  staged  ///< through host memory, by MPI: slow, but several ranks may share a GPU
};

/// Makes communicators for the memory of a device. A backend whose memory is not the host's is one of these, too.
class DeviceCommunicators {
 public:
  virtual ~DeviceCommunicators() = default;
  /// A communicator for the memory of the ranks' devices, over the ranks of `host`, which works on host memory and is
  /// for this one alone. All others are split from it. Collective over `host`. Throws EnvironmentError, which says
  /// which ranks and what can be done, where they share GPUs and `transport` is NCCL's. Dies before the backend.
  virtual std::unique_ptr<Communicator> make_world(std::unique_ptr<Communicator> host, DeviceTransport transport) = 0;
};

}  // namespace trireme
