#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/train/train_options.hpp"
#include "src/train/trainer.hpp"

namespace trireme::app {

/// Range of a number of updates or samples. A share of them, computed in floating point, still fits into 64 bits.
constexpr Range update_count(double min) { return {min, 1e18}; }

/// Reads a number of tokens, samples or steps, with or without a unit of thousands to trillions (1e12): "2.5K". Throws
/// ConfigError.
std::int64_t scaled_number(const std::string& text);

/// Kind of a run: pretraining on corpora, or a task, whose length is given in epochs.
enum class RunKind { pretraining, task };

/// Options of samples, batches and the length of a run.
struct BatchOptions {
  std::optional<std::int64_t> sequence_length;  ///< the model's positions, unless given
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> global_batch_size;  ///< one micro-batch per data rank, unless given
  std::optional<std::int64_t> micro_batches;      ///< per update and data rank
  std::vector<std::int64_t> ramp_up_numbers;
  std::string steps_text;
  std::optional<train::BatchGrowth> ramp_up;
  bool decrease = false;
  bool variable_lengths = false;
  train::LossAverage loss_average = train::LossAverage::tokens;
  std::optional<std::int64_t> train_iterations;  ///< exclude `train_samples`
  std::optional<std::int64_t> train_samples;

  void declare(Options& options, RunKind kind = RunKind::pretraining);
  /// Sets the global batch size and its growth, and the micro-batch size if two other sizes imply it. Requires the
  /// sequence length.
  void settle(const Options& options, int data_ranks, Problems& problems);

  /// Returns whether the run's length is given in exactly one way.
  bool has_length() const { return train_iterations.has_value() != train_samples.has_value(); }
  /// Returns the global batches of `data_ranks` data ranks. Throws ConfigError if they do not divide.
  train::BatchSchedule batches(int data_ranks) const;
  /// Returns the iterations of the entire run, `done` included.
  std::int64_t iterations(const train::Progress& done, int data_ranks) const;
};

}  // namespace trireme::app
