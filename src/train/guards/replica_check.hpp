#pragma once

#include <cstdint>
#include <memory>

#include "src/optim/optimizer.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Compares the ranks with the same parameters (GradientGroup::gradient): their weights and, if the optimizer's state
/// is not sharded, master weights and moments. Shards of the state exist only once.
class ReplicaCheck {
 public:
  /// Collective. Both must live longer.
  ReplicaCheck(ParallelModel& model, const optim::Optimizer& optimizer);

  /// Hashes the tensors and exchanges the hashes, eight bytes a tensor. If ranks differ, throws MachineError on all
  /// ranks with the first such tensor, the ranks and hosts with deviating values, and the others. Waits for the device.
  /// Collective.
  void check(std::int64_t iteration) const;

 private:
  struct Hash {
    std::string name;
    std::uint64_t value = 0;
  };
  std::vector<Hash> hashes(int gradient_group) const;
  /// Ranks that hold the same parameters of a gradient group.
  struct Replicas {
    std::unique_ptr<Communicator> ranks;  // on host memory
    int first = 0;                        // world rank of the first
  };
  void check(std::int64_t iteration, int gradient_group) const;

  ParallelModel& model_;
  const optim::Optimizer& optimizer_;
  std::vector<Replicas> replicas_;  // by gradient group
};

}  // namespace trireme::train
