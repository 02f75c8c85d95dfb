#pragma once

#include <cstdint>
#include <vector>

#include "src/base/attributes.hpp"

namespace trireme::data {

/// Number of samples that a run reads from each split.
struct SampleBudget {
  std::int64_t train = 0, valid = 0, test = 0;
  bool operator==(const SampleBudget&) const = default;
};

/// Length of a run and its evaluation interval.
struct RunLength {
  std::int64_t train_iters = 0;
  std::int64_t train_samples = 0;  ///< samples of a training by samples; 0: train_iters global batches
  std::int64_t global_batch_size = 1;
  std::int64_t eval_interval = 1;
  std::int64_t eval_iters = 0;
};

/// Samples of an entire run, as counted by Megatron-LM. Training has train_samples, or train_iters global batches. Each
/// evaluation has eval_iters global batches; one follows every eval_interval iterations, and one the end. The test has
/// eval_iters. Throws ConfigError for a negative number, a global batch or an eval_interval of 0, or too many samples
/// to count.
SampleBudget samples_needed(const RunLength& run);

/// Position of a rank among those that divide the global batch.
struct SamplerGrid {
  std::int64_t micro_batch_size = 1;
  std::int64_t data_parallel_size = 1;
};

/// First of the micro_batch_size consecutive samples that data rank `data_rank` reads as its micro-batch `micro_batch`
/// of an iteration that starts after `consumed_samples`:
///   consumed_samples + (micro_batch · data_parallel_size + data_rank) · micro_batch_size.
/// Micro-batches 0 .. m-1 of all data ranks cover the m · data_parallel_size · micro_batch_size samples of the global
/// batch exactly once, on any grid (Megatron-LM's "single" data loader).
constexpr std::int64_t first_sample(std::int64_t consumed_samples, std::int64_t micro_batch, std::int64_t data_rank,
                                    const SamplerGrid& grid) {
  return consumed_samples + (micro_batch * grid.data_parallel_size + data_rank) * grid.micro_batch_size;
}

/// Converts the budgets of a run and its predecessors, oldest first, to the attribute "data_budgets" of a checkpoint
/// and back. CheckpointError if it is missing or malformed.
Attributes attributes_of(const std::vector<SampleBudget>& budgets);
std::vector<SampleBudget> budgets_from(const Attributes& attributes);

}  // namespace trireme::data
