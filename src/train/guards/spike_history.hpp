#pragma once

#include <cstdint>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/train/guards/guard_options.hpp"

namespace trireme::train {

/// A return to a checkpoint after a spike.
struct Rewind {
  std::int64_t from = 0;                          ///< iteration that completed the spike; the run goes on after it
  std::int64_t to = 0;                            ///< iteration of the checkpoint
  std::int64_t first_sample = 0, end_sample = 0;  ///< samples left out: those of iterations to + 1 ... from
  friend bool operator==(const Rewind&, const Rewind&) = default;
};

/// Losses of a run in which it finds spikes, and the rewinds after them: part of its state.
///
/// A loss is high if it exceeds the mean of the last `window` losses that were not high by more than `z_score` times
/// their standard deviation sqrt(mean((x - mean)^2)), once there are as many. One that is not finite is always high.
/// `iterations` high losses in a row are a spike. llm.c tests single losses and gradient norms likewise
/// (llmc/outlier_detector.h), but outliers enter its window, where a lasting spike soon looks normal.
class SpikeHistory {
 public:
  friend bool operator==(const SpikeHistory&, const SpikeHistory&) = default;

  /// Adds the loss of an iteration. `is_bad`: its gradients were not finite, so it counts as high.
  void add(std::int64_t iteration, double loss, bool is_bad, const RewindOptions& options);
  /// Adds a rewind to the history of its checkpoint; `earlier` are the rewinds before.
  void add(std::vector<Rewind> earlier, const Rewind& rewind);

  /// Returns whether the latest losses are a spike; and whether the next loss may complete one.
  bool is_spike(const RewindOptions& options) const { return in_row_ >= options.iterations; }
  bool is_next_spike(const RewindOptions& options) const { return in_row_ + 1 >= options.iterations; }
  /// First iteration of the high losses in a row, if there are any.
  std::int64_t first_high() const { return first_high_; }
  const std::vector<Rewind>& rewinds() const { return rewinds_; }

  struct Moments {
    double mean = 0;
    double deviation = 0;
  };
  Moments moments() const;

  /// Converts the history to attributes "state.spike_*" and "state.rewinds", none if it is empty, and back.
  /// CheckpointError if one is malformed.
  void put(Attributes& attributes) const;
  static SpikeHistory from(const Attributes& attributes);

 private:
  std::vector<double> losses_;  // the last ones that were not high, oldest first
  int in_row_ = 0;              // high losses in a row
  std::int64_t first_high_ = 0;
  std::vector<Rewind> rewinds_;
};

}  // namespace trireme::train
