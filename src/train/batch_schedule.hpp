#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace trireme::train {

/// Global batch that ramps up as in Megatron-LM: from `start` samples, it grows by `increment` each time another equal
/// part of the first `samples` samples is consumed, one part for each increment. From sample number `samples` on it is
/// full.
struct BatchRampUp {
  std::int64_t start = 0;
  std::int64_t increment = 0;
  std::int64_t samples = 0;
};

/// Global batches of `size` samples from sample number `begin` on.
struct BatchLevel {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
/// Batches of any sizes, as in Megatron-LM's step schedule: the levels ascend, and the first begins at 0.
struct BatchSteps {
  std::vector<BatchLevel> levels;
};
using BatchGrowth = std::variant<BatchRampUp, BatchSteps>;

/// Consecutive iterations with global batches of one size.
struct BatchPhase {
  std::int64_t size = 0;
  std::int64_t iterations = 0;
};

/// Returns the number of micro-batches of a batch on each data rank. Throws ConfigError if the batch is not a multiple
/// of `micro_batch_size` x `data_ranks`. The message starts with `name` and ends with `remedy`, after the usual
/// remedies.
std::int64_t micro_batches_of(std::int64_t batch_size, std::int64_t micro_batch_size, std::int64_t data_ranks,
                              const std::string& name = "<global_batch_size>", const std::string& remedy = "");

/// Schedule of global batch sizes, as a pure function of the samples consumed so far.
class BatchSchedule {
 public:
  /// Every batch must be a multiple of `micro_batch_size` x `data_ranks`; `decrease` rounds it down to one. Throws
  /// ConfigError if it is not, if a ramp does not lead from its start to the global batch, or if the largest batch of
  /// steps is not the global batch.
  BatchSchedule(std::int64_t global_batch_size, const std::optional<BatchGrowth>& growth, bool decrease,
                std::int64_t micro_batch_size, std::int64_t data_ranks);

  /// Batch size requested after `consumed` samples, and its actual, rounded size.
  std::int64_t planned(std::int64_t consumed) const { return levels_[level_of(consumed)].size; }
  std::int64_t size(std::int64_t consumed) const { return planned(consumed) / unit_ * unit_; }
  /// Largest actual batch. Evaluations use it.
  std::int64_t max_size() const { return global_batch_size_ / unit_ * unit_; }
  /// Micro-batches of the largest batch on each data rank.
  std::int64_t max_micro_batches() const { return global_batch_size_ / unit_; }
  bool ramps_up() const { return levels_.size() > 1; }

  /// Returns the batches after `consumed` samples, up to sample number `total` and at most `iterations`. Omits a
  /// partial last batch.
  std::vector<BatchPhase> plan(std::int64_t consumed, std::int64_t total,
                               std::int64_t iterations = std::numeric_limits<std::int64_t>::max()) const;
  /// Returns the number of iterations of `plan`, without a limit.
  std::int64_t iterations(std::int64_t consumed, std::int64_t total) const;
  /// Returns the samples of the next `iterations` batches.
  std::int64_t samples(std::int64_t consumed, std::int64_t iterations) const;

 private:
  std::size_t level_of(std::int64_t consumed) const;
  /// Number of samples consumed at the end of a level.
  std::int64_t end_of(std::size_t level) const {
    return level + 1 < levels_.size() ? levels_[level + 1].begin : std::numeric_limits<std::int64_t>::max();
  }

  std::int64_t global_batch_size_;
  std::int64_t unit_;
  std::vector<BatchLevel> levels_;
};

}  // namespace trireme::train
