#pragma once

#include <vector>

#include "src/plan/simulation.hpp"
#include "src/plan/step/work_time.hpp"
#include "src/plan/work/update_work.hpp"

namespace trireme::plan {

/// Times of one unit of parameters with a micro-batch: its forward, and the step that completes its gradients.
struct UnitTime {
  double forward = 0;
  double backward = 0;
};

/// Time that a rank spends on its update.
struct UpdateTime {
  WorkTime clearing;
  WorkTime reduction;  ///< after its last backward, plus the excess of its last backward over others
  WorkTime norm;
  WorkTime update;  ///< plus the next forwards' waits for parameters
};

/// Times recorded updates of one rank. `units` are those of `work`, in its order.
class UpdateTimer {
 public:
  /// All must outlive this object.
  UpdateTimer(const Cluster& cluster, const GroupPlacements& groups, const UpdateWork& work,
              const std::vector<UnitTime>& units, bool graphs)
      : cluster_(cluster), groups_(groups), work_(work), units_(units), graphs_(graphs) {}

  /// Excess of every backward of a chunk over its units: from gradients rounded or, in ZeRO 2, reduced after each
  /// micro-batch.
  WorkTime hooks(int chunk) const;

  /// Time of the update after the rank's `steps`, whose backwards contain `hooks`. Overlapped reductions start when the
  /// last backward has passed a bucket's last unit. Overlapped gathers extend into the next forwards, which occur at
  /// the times of these steps.
  UpdateTime update(const std::vector<TimedStep>& steps, int micro_batches, int chunks) const;

 private:
  WorkTimer timer() const { return {cluster_, groups_, graphs_}; }
  WorkTime reduction(const std::vector<TimedStep>& steps, int last_micro_batch) const;
  WorkTime optimizer(const std::vector<TimedStep>& steps) const;

  const Cluster& cluster_;
  const GroupPlacements& groups_;
  const UpdateWork& work_;
  const std::vector<UnitTime>& units_;
  bool graphs_;
};

}  // namespace trireme::plan
