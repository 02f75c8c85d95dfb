#pragma once

#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// Every collective operation in every group of the grid: its result, which is exact, at a small and a large size, and
/// its bus bandwidth at the large one. All groups of a name communicate at the same time, as in training. Groups inside
/// one node and groups across nodes are compared among themselves.
class CollectivesCheck final : public Check {
 public:
  std::string name() const override { return "collectives"; }
  std::string measures() const override { return "results and bandwidths in the groups of the grid"; }
  Scope scope() const override { return Scope::devices; }
  std::vector<Result> run(Context& context) override;
};

/// Time in which 8 bytes pass between two ranks in both directions: neighbours in rank, and ranks half the job apart.
class LatencyCheck final : public Check {
 public:
  std::string name() const override { return "MPI latency"; }
  std::string measures() const override { return "time of small messages between ranks"; }
  Scope scope() const override { return Scope::ranks; }
  std::vector<Result> run(Context& context) override;
};

}  // namespace trireme::selftest
