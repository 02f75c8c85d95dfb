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

/// Gathers the GPUs of all ranks, in rank order. Collective over `host`, a communicator for host memory. The
/// environment variable NCCL_HOSTID, where it is set, is the name of a rank's machine, as for NCCL. Ranks of one GPU
/// with different values are on different machines to NCCL, which then uses sockets. This is slow, and exercises on one
/// GPU NCCL's communication between ranks.
std::vector<RankGpu> gather_gpu_table(Communicator& host, const Device& device);

/// Throws EnvironmentError, which lists the ranks that share a GPU and says what can be done, unless each has its own.
void check_one_rank_a_gpu(const std::vector<RankGpu>& table);

}  // namespace trireme::cuda
