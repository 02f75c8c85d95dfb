#pragma once

#include <string>
#include <vector>

#include "cuda/runtime/device.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::cuda {

/// Which GPU a rank uses.
struct RankGpu {
  std::string host;
  std::string uuid;
  std::string name;  ///< "GPU 1 (NVIDIA H200)"
};

/// The GPUs of all ranks, in rank order. Collective over `host`, a communicator for host memory. A rank's machine has
/// the name in the environment variable NCCL_HOSTID where that is set, since NCCL goes by it: ranks of one GPU that
/// give each its own are on machines of their own to NCCL, which passes what they exchange through sockets. It is slow,
/// and shows on one GPU what NCCL does between ranks.
std::vector<RankGpu> gather_gpu_table(Communicator& host, const Device& device);

/// Throws EnvironmentError, which lists the ranks that share a GPU and says what can be done, unless each has its own.
void check_one_rank_a_gpu(const std::vector<RankGpu>& table);

}  // namespace trireme::cuda
