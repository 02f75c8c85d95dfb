#pragma once

#include "src/plan/step/step_prediction.hpp"

namespace trireme::plan {

/// Groups in which a rank communicates once a step.
struct UpdateGroups {
  GroupPlacement gradient, embedding, model;
};

/// Share of one rank, on which the end of its step depends.
struct RankShare {
  double parameters = 0;         ///< elements
  double shared_parameters = 0;  ///< elements of the tied embedding, if another stage has them, too
  int layers = 0;
  int micro_batches = 1;
  double forward_ms = 0;        ///< time of a micro-batch
  double last_backward_ms = 0;  ///< time of the last micro-batch, beside which gradients can be reduced
  double backward_ms = 0;       ///< time of every micro-batch
};

/// The end of a step: clearing gradients, their reduction and their norm, the update, and the gathering of parameters.
struct UpdateTime {
  WorkTime reduction;  ///< before the norm
  WorkTime after;
};
UpdateTime update_time(const Cluster& cluster, const Job& job, const UpdateGroups& groups, const RankShare& rank);

}  // namespace trireme::plan
