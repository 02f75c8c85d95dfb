#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace trireme::train {

/// A global batch that grows with the run, as Megatron-LM's: `start` samples at first, `increment` more whenever
/// another of the equal parts of `samples` has been consumed, one part for each increment; the full batch from sample
/// number `samples` on.
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
/// Batches of any sizes, as Megatron-LM's step schedule: the first level begins at 0, each later one after the one
/// before.
struct BatchSteps {
  std::vector<BatchLevel> levels;
};
using BatchGrowth = std::variant<BatchRampUp, BatchSteps>;

/// Some iterations in a row with global batches of one size.
struct BatchPhase {
  std::int64_t size = 0;
  std::int64_t iterations = 0;
};

/// Returns the micro-batches of a batch on each data rank. Throws ConfigError if the batch is not a multiple of
/// `micro_batch_size` x `data_ranks`. The message begins with `name`, and ends with `remedy` after the common ones.
std::int64_t micro_batches_of(std::int64_t batch_size, std::int64_t micro_batch_size, std::int64_t data_ranks,
                              const std::string& name = "<global_batch_size>", const std::string& remedy = "");

/// The size of the global batch that comes next, a function of the samples consumed so far. Pure arithmetic.
class BatchSchedule {
 public:
  /// All data ranks together work on `micro_batch_size` x `data_ranks` samples at a time. Every batch must be a
  /// multiple of that; with `decrease` it is rounded down to one. Throws ConfigError if it is not, where a ramp does
  /// not lead from its start to the global batch, or where that is not the largest batch of steps.
  BatchSchedule(std::int64_t global_batch_size, const std::optional<BatchGrowth>& growth, bool decrease,
                std::int64_t micro_batch_size, std::int64_t data_ranks);

  /// Batch size requested after `consumed` samples, and the size that runs: rounded down.
  std::int64_t planned(std::int64_t consumed) const { return levels_[level_of(consumed)].size; }
  std::int64_t size(std::int64_t consumed) const { return planned(consumed) / unit_ * unit_; }
  /// The largest batch, as it runs. Evaluations use it.
  std::int64_t max_size() const { return global_batch_size_ / unit_ * unit_; }
  /// Micro-batches of that one on each data rank.
  std::int64_t max_micro_batches() const { return global_batch_size_ / unit_; }
  bool ramps_up() const { return levels_.size() > 1; }

  /// The batches after `consumed` samples: as many as there are before another one would go beyond sample number
  /// `total` or beyond `iterations`. A last batch that would not be whole is left out.
  std::vector<BatchPhase> plan(std::int64_t consumed, std::int64_t total,
                               std::int64_t iterations = std::numeric_limits<std::int64_t>::max()) const;
  /// Iterations of that plan, without a limit of their own.
  std::int64_t iterations(std::int64_t consumed, std::int64_t total) const;
  /// Samples of the next `iterations` batches.
  std::int64_t samples(std::int64_t consumed, std::int64_t iterations) const;

 private:
  std::size_t level_of(std::int64_t consumed) const;
  /// Samples consumed at the end of a level.
  std::int64_t end_of(std::size_t level) const {
    return level + 1 < levels_.size() ? levels_[level + 1].begin : std::numeric_limits<std::int64_t>::max();
  }

  std::int64_t global_batch_size_;
  std::int64_t unit_;
  std::vector<BatchLevel> levels_;
};

}  // namespace trireme::train
