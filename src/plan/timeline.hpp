#pragma once

#include <string>
#include <vector>

#include "src/base/trace.hpp"
#include "src/plan/step/step_prediction.hpp"

namespace trireme::plan {

/// Spans that a rank of pipeline stage `stage` would record of one predicted step (train --trace-file): the iteration,
/// pipeline steps and the waits before them, the reduction of gradients, the norm and the update.
std::vector<TraceSpan> spans_of(const Job& job, const StepPrediction& step, int stage);

/// An event of a trace, as read from a file.
struct TraceEvent {
  int rank = 0;
  std::string name;
  double start_us = 0;
  double end_us = 0;
};

/// Time per iteration of the events of one name on one rank, predicted and measured.
struct EventDifference {
  std::string name;
  int rank = 0;
  double predicted_ms = 0, measured_ms = 0;        ///< all of them
  double predicted_count = 0, measured_count = 0;  ///< number of them
  double difference_ms() const { return measured_ms - predicted_ms; }
};

/// Compares a trace with a prediction, event by event and rank by rank, the largest difference first. Measured times
/// are means over the iterations of the trace, excluding the first of several as warm-up. ConfigError if the trace has
/// no iteration, or its ranks do not match the job's grid.
std::vector<EventDifference> compare(const Job& job, const StepPrediction& step, const std::vector<TraceEvent>& trace);

}  // namespace trireme::plan
