#pragma once

#include <span>
#include <vector>

namespace trireme::plan {

/// Action of a rank other than computing: it starts a communication, or waits for one that it has started.
struct OverlapStep {
  enum class Kind { start, wait };
  double compute = 0;  ///< time of computing since the step before, in any unit
  Kind kind = Kind::start;
  int operation = 0;    ///< number of the communication, from 0
  double duration = 0;  ///< duration of the communication that starts; unused in a wait
  int link = 0;         ///< number of the link that it takes, from 0; unused in a wait
};

/// Time of a rank's steps, and the part of it in which the rank waited for each operation.
struct CriticalPath {
  double time = 0;            ///< until the last step
  std::vector<double> waits;  ///< by operation
};

/// Communications of a link go one after another in the order of their starts, while the rank computes; a wait lasts
/// until its communication is over. ConfigError for a wait without a start.
CriticalPath critical_path(std::span<const OverlapStep> steps);

}  // namespace trireme::plan
