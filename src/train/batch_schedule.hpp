#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace trireme::train {

/// A global batch that grows with the run, as Megatron-LM's: `start` samples at first, `increment` more whenever
/// another of the equal parts of `samples` has been consumed, one part for each increment; the whole batch from sample
/// number `samples` on.
struct BatchRampUp {
  std::int64_t start = 0;
  std::int64_t increment = 0;
  std::int64_t samples = 0;
};

/// Some iterations in a row with global batches of one size.
struct BatchPhase {
  std::int64_t size = 0;
  std::int64_t iterations = 0;
};

/// Returns the micro-batches of a batch on each data rank. Throws ConfigError where the batch is no multiple of
/// `micro_batch_size` x `data_ranks`. The message begins with `name`, and ends with `remedy` after the common ones.
std::int64_t micro_batches_of(std::int64_t batch_size, std::int64_t micro_batch_size, std::int64_t data_ranks,
                              const std::string& name = "<global_batch_size>", const std::string& remedy = "");

/// The size of the global batch that comes next, a function of the samples consumed so far. Pure arithmetic.
class BatchSchedule {
 public:
  /// All data ranks together work on `micro_batch_size` x `data_ranks` samples at a time. Every batch must be a
  /// multiple of that; with `decrease` it is rounded down to one. Throws ConfigError where it is not, or where the ramp
  /// does not lead from its start to the global batch.
  BatchSchedule(std::int64_t global_batch_size, const std::optional<BatchRampUp>& ramp_up, bool decrease,
                std::int64_t micro_batch_size, std::int64_t data_ranks);

  /// Batch size requested after `consumed` samples, and the size that runs: rounded down.
  std::int64_t planned(std::int64_t consumed) const { return size_at(level_of(consumed)); }
  std::int64_t size(std::int64_t consumed) const { return planned(consumed) / unit_ * unit_; }
  /// The batch at the end of the ramp, as it runs: none is larger. Evaluations use it.
  std::int64_t max_size() const { return global_batch_size_ / unit_ * unit_; }
  /// Micro-batches of that one on each data rank.
  std::int64_t max_micro_batches() const { return global_batch_size_ / unit_; }
  bool ramps_up() const { return levels_ > 0; }

  /// The batches after `consumed` samples: as many as there are before another one would go beyond sample number
  /// `total` or beyond `iterations`. A last batch that would not be whole is left out.
  std::vector<BatchPhase> plan(std::int64_t consumed, std::int64_t total,
                               std::int64_t iterations = std::numeric_limits<std::int64_t>::max()) const;
  /// Iterations of that plan, without a limit of their own.
  std::int64_t iterations(std::int64_t consumed, std::int64_t total) const;
  /// Samples of the next `iterations` batches.
  std::int64_t samples(std::int64_t consumed, std::int64_t iterations) const;

 private:
  std::int64_t level_of(std::int64_t consumed) const;
  std::int64_t size_at(std::int64_t level) const {
    return level == levels_ ? global_batch_size_ : ramp_up_.start + level * ramp_up_.increment;
  }
  /// Samples consumed at the end of a level of the ramp.
  std::int64_t end_of(std::int64_t level) const;

  std::int64_t global_batch_size_;
  std::int64_t unit_;
  BatchRampUp ramp_up_;
  std::int64_t levels_ = 0;  // batch sizes of the ramp before the whole one; 0: no ramp
};

}  // namespace trireme::train
