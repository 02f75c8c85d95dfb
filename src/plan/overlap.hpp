#pragma once

#include <span>
#include <vector>

namespace trireme::plan {

/// Communication step of a rank: starts an operation, or waits for one it has started.
struct OverlapStep {
  enum class Kind { start, wait };
  double compute = 0;  ///< compute time since the previous step, in any unit
  Kind kind = Kind::start;
  int operation = 0;    ///< number of the communication, from 0
  double duration = 0;  ///< duration of the communication that starts; unused in a wait
  int link = 0;         ///< link used, from 0; unused in a wait
};

/// Time of a rank's steps, and the part of it in which the rank waited for each operation.
struct CriticalPath {
  double time = 0;            ///< until the last step
  std::vector<double> waits;  ///< by operation
};

/// Serialises the communications of a link in the order of their starts, while the rank computes; a wait lasts until
/// its communication completes. ConfigError for a wait without a start.
CriticalPath critical_path(std::span<const OverlapStep> steps);

}  // namespace trireme::plan
