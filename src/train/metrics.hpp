#pragma once

#include <cstdint>
#include <optional>

#include "src/data/dataset/split.hpp"

namespace trireme::train {

/// Measurements of one training iteration, the same on every rank.
struct TrainRecord {
  std::int64_t iteration = 0;         ///< 1 is the first update
  std::int64_t consumed_samples = 0;  ///< after the update
  double lm_loss = 0;                 ///< mean over the tokens of the global batch that count (see LossAverage), fp64
  double grad_norm = 0;               ///< L2, before clipping, of the true gradient (loss scale taken out)
  double learning_rate = 0;           ///< the one used
  double loss_scale = 1;              ///< the one used
  bool skipped = false;               ///< no update was made: a gradient was not finite
  double elapsed_ms = 0;
  double tokens_per_second = 0;
  double tflops_per_rank = 0;  ///< model FLOPs, full attention, no recomputation counted
};

/// Measurements of an evaluation on the validation or the test split.
struct EvaluationRecord {
  std::int64_t iteration = 0;
  double loss = 0;
  double perplexity = 0;  ///< exp(min(20, loss))
  data::Split split = data::Split::valid;
};

/// Where records go. Only one rank of a run has one.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void write(const TrainRecord& record) = 0;
  virtual void write(const EvaluationRecord& record) = 0;
};

}  // namespace trireme::train
