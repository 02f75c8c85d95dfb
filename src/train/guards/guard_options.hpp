#pragma once

#include <cstdint>
#include <optional>
#include <set>

namespace trireme::train {

/// Options of rewinds: after a spike (SpikeHistory) a run goes back to an earlier checkpoint and leaves out the samples
/// since, as was done by hand for PaLM (Chowdhery et al. 2022, 5.1) and BLOOM.
struct RewindOptions {
  double z_score = 6;
  int iterations = 10;
  int window = 128;
  std::int64_t distance = 100;  ///< least number of iterations from the checkpoint to the first high loss
  int max_rewinds = 5;          ///< the next spike ends the run
};

/// Options of the checks of a run's numbers.
struct GuardOptions {
  /// A loss or gradient that is not finite ends the run. If false, or with a dynamic loss scale, which makes such
  /// gradients on purpose, or with rewinds, the update is skipped.
  bool check_for_nan = true;
  int max_machine_faults = 3;  ///< machine faults after which the run continues
  /// A loss of at least this factor times the largest of the first losses is spiky (Progress::is_spiky): the step runs
  /// again, to find a machine's fault; 0: no check.
  double spiky_loss_factor = 0;
  bool skip_spiky_loss = false;                 ///< skips the update if the spiky loss repeats
  std::set<std::int64_t> iterations_to_skip{};  ///< iterations that only consume their samples
  std::optional<RewindOptions> rewinds{};
};

}  // namespace trireme::train
