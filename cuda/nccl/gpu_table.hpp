#pragma once

#include <string>
#include <vector>

#include "cuda/runtime/device.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::cuda {

struct RankGpu {
  std::string host;
  std::string uuid;
  std::string name;  ///< "GPU 1 (NVIDIA H200)"
};

/// Name of a rank's machine: the host's, or the environment variable NCCL_HOSTID if set, as for NCCL. NCCL treats ranks
/// with different values as on different machines, and uses sockets. This is slow, but tests NCCL's communication
/// between ranks on one GPU.
std::string machine_name(const DeviceLocation& location);

/// Gathers the GPUs of all ranks, in rank order. Collective over `host`, a communicator for host memory.
std::vector<RankGpu> gather_gpu_table(Communicator& host, const Device& device);

/// Throws EnvironmentError, with the ranks that share a GPU and a remedy, unless each has its own.
void check_one_rank_a_gpu(const std::vector<RankGpu>& table);
/// The same for the ranks of `host`. Each receives 8 bytes of every other; the table only if ranks share a GPU.
void check_one_rank_a_gpu(Communicator& host, const Device& device);

}  // namespace trireme::cuda
