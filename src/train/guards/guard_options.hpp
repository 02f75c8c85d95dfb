#pragma once

#include <cstdint>
#include <set>

namespace trireme::train {

/// Options of the checks of a run's numbers.
struct GuardOptions {
  /// A loss or gradient that is not finite ends the run. If false, or with a dynamic loss scale, which makes such
  /// gradients on purpose, the update is skipped.
  bool check_for_nan = true;
  int max_machine_faults = 3;  ///< machine faults after which the run continues
  /// A loss of at least this factor times the largest of the first losses is spiky (Progress::is_spiky): the step runs
  /// again, to find a machine's fault; 0: no check.
  double spiky_loss_factor = 0;
  bool skip_spiky_loss = false;                 ///< skips the update if the spiky loss repeats
  std::set<std::int64_t> iterations_to_skip{};  ///< iterations that only consume their samples
};

}  // namespace trireme::train
