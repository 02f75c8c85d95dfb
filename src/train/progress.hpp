#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/optim/loss_scaler.hpp"
#include "src/train/fp8_history.hpp"
#include "src/train/guards/spike_history.hpp"

namespace trireme::train {

/// Reason why an iteration made no update.
enum class Skip {
  not_finite,  ///< its loss or gradients were not finite
  spiky,       ///< GuardOptions::skip_spiky_loss
  requested    ///< GuardOptions::iterations_to_skip
};

/// Progress of a run in iterations and samples.
struct Progress {
  std::int64_t iteration = 0;  ///< completed iterations, including skipped ones
  std::int64_t consumed_samples = 0;
  std::int64_t skipped = 0;          ///< iterations without an update
  int skipped_in_row = 0;            ///< consecutive ones, because loss or gradients were not finite
  int skipped_at_minimum_scale = 0;  ///< consecutive ones, at a loss scale that cannot be lowered
  std::int64_t updated_samples = 0;  ///< consumed by iterations with an update
  bool evaluation_left = false;      ///< the validation after this iteration was interrupted
  bool tested = false;               ///< the test split was evaluated after this iteration
  std::int64_t best_iteration = 0;   ///< iteration of a task's best validation score; 0: none yet
  double best_score = 0;
  int noted_losses = 0;     ///< number of first losses in `largest_loss`; at most spike_losses
  double largest_loss = 0;  ///< largest of the first losses, if spiky losses are detected
  static constexpr int spike_losses = 100;
  friend bool operator==(const Progress&, const Progress&) = default;

  std::int64_t updates() const { return iteration - skipped; }
  /// Counts an iteration on `batch_size` samples. `skip` is the reason if it made no update; `at_minimum_scale` tells
  /// whether its loss scale could not be lowered.
  void add_iteration(std::int64_t batch_size, std::optional<Skip> skip, bool at_minimum_scale);
  /// Returns whether `loss` is at least `factor` times the largest of the first 100 losses. Megatron-LM applies this
  /// test to the loss of each micro-batch, with factor 10; here it applies to the full batch.
  bool is_spiky(double loss, double factor) const {
    return noted_losses == spike_losses && std::isfinite(loss) && loss >= factor * largest_loss;
  }
  /// Records the loss of an iteration, if it is one of the first.
  void note_loss(double loss);
  /// Records the score of a task after this iteration. Returns whether it is better than all before.
  bool note_score(double score);
};

/// Use of the optimizer's state in a checkpoint: moments, the count of their updates, and the loss scale. left_out: the
/// checkpoint has only weights, or a run continues from its weights with fresh moments.
enum class OptimizerState { kept, left_out };

/// Records in the attributes of a checkpoint whether the optimizer's state is left out, and reads it back.
void put_optimizer_state(Attributes& attributes, OptimizerState optimizer);
OptimizerState optimizer_state_of(const Attributes& attributes);

/// State of a run in addition to its tensors.
struct SavedState {
  Progress progress;
  std::int64_t updates = 0;  ///< updates since the optimizer's moments were 0, perhaps later than the run's start
  optim::LossScaler::State loss_scale;
  /// By layer: choices of each expert in the last update, for a balance loss over global batches; otherwise empty.
  std::map<int, std::vector<double>> expert_loads{};
  Fp8History fp8_history{};  ///< for products in FP8 with delayed scales; otherwise empty
  SpikeHistory spikes{};     ///< for rewinds; otherwise empty
  friend bool operator==(const SavedState&, const SavedState&) = default;
};

/// Converts the state to the attributes "state.*" of a checkpoint, and back. CheckpointError if a value is missing,
/// malformed or contradicts another.
Attributes attributes_of(const SavedState& state);
SavedState state_from(const Attributes& attributes);
/// Reads only the progress.
Progress progress_from(const Attributes& attributes);

}  // namespace trireme::train
