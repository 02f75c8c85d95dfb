#pragma once

#include <span>

namespace trireme::plan {

/// Action of a rank other than computing: it starts a communication, or waits for one that it has started.
struct OverlapStep {
  enum class Kind { start, wait };
  double compute = 0;  ///< time of computing since the step before, in any unit
  Kind kind = Kind::start;
  int operation = 0;    ///< number of the communication, from 0
  double duration = 0;  ///< duration of the communication that starts; unused in a wait
};

/// The time until the last step: communications go over one link, one after another in the order of their starts, while
/// the rank computes; a wait lasts until its communication is over. ConfigError for a wait without a start.
double critical_path(std::span<const OverlapStep> steps);

}  // namespace trireme::plan
