#pragma once

#include "src/plan/cases/published_costs.hpp"
#include "src/plan/cases/published_run.hpp"
#include "src/plan/step/work_time.hpp"

namespace trireme::plan {

/// A part of the model, on one micro-batch.
struct PartTime {
  WorkTime forward;
  WorkTime backward_input;  ///< including the recomputed forward
  WorkTime backward_weight;

  WorkTime total() const { return forward + backward_input + backward_weight; }
  PartTime& operator+=(const PartTime& other);
  friend PartTime operator*(double factor, const PartTime& part);
};

/// A transformer layer of the run.
PartTime layer_time(const PublishedRun& run, const PublishedCosts& costs);
/// The embedding, which only takes memory-bound time.
PartTime embedding_time(const PublishedRun& run, const PublishedCosts& costs);
/// The output layer with its loss. It is never recomputed.
PartTime head_time(const PublishedRun& run, const PublishedCosts& costs);

}  // namespace trireme::plan
