#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/data/dataset/split.hpp"
#include "src/train/exposed_communication.hpp"
#include "src/train/progress.hpp"

namespace trireme::train {

/// Returns `value`. A NaN loses its sign, which differs from machine to machine and would be printed.
inline double unsigned_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

/// Load of a layer's experts in an iteration.
struct LayerLoad {
  int layer = 0;
  double balance_loss = 0;  ///< weighted by coefficients over their sum: mean over the micro-batches; 1 if even
  double z_loss = 0;        ///< likewise
  /// Mean over the tokens of -sum p log p, p the router's scores over all experts; at most log(experts).
  double router_entropy = 0;
  double max_load = 0;  ///< largest number of tokens of an expert, over the mean
  double entropy = 0;   ///< entropy of the loads, divided by that of equal loads
  double dropped = 0;   ///< fraction of the choices that exceed the capacity
};

/// Summary of the layers with experts: means of the losses, `router_entropy` and `dropped`, the largest `max_load` and
/// its layer, the least entropy.
LayerLoad summary_of(const std::vector<LayerLoad>& layers);

/// Measurements of one training iteration, the same on every rank.
struct TrainRecord {
  std::int64_t iteration = 0;         ///< 1 is the first update
  std::int64_t consumed_samples = 0;  ///< after the update
  std::int64_t batch_size = 0;        ///< samples
  double lm_loss = 0;                 ///< mean over the counted tokens of the global batch (see LossAverage), fp64
  std::optional<double> sop_loss;     ///< BERT with a binary head: mean over the samples
  std::optional<double> mtp_loss;     ///< modules ahead: mean over them and over the counted tokens of lm_loss
  double grad_norm = 0;               ///< before clipping, without the loss scale
  double learning_rate = 0;           ///< used in this update, like the following rates
  std::optional<double> decoupled_learning_rate;  ///< if any
  std::optional<double> params_norm;              ///< L2 norm of the parameters after the update, if measured
  std::optional<std::int64_t> num_zeros;          ///< number of zero gradients, if counted
  std::optional<double> weight_decay;             ///< if it changes during the run
  std::vector<LayerLoad> experts;                 ///< by layer with experts
  double loss_scale = 1;
  bool skipped = false;                 ///< no update was made
  Skip skip_reason = Skip::not_finite;  ///< valid if skipped; a requested skip has no loss
  double elapsed_ms = 0;
  double tokens_per_second = 0;
  double tflops_per_rank = 0;                          ///< model FLOPs, full attention, without recomputation
  std::optional<std::vector<ExposedTime>> exposed_ms;  ///< by group, if measured: see ExposedCommunication::take_ms

  /// Sum of the losses. It is finite if all are.
  double loss() const { return lm_loss + sop_loss.value_or(0) + mtp_loss.value_or(0); }
};

/// Measurements of an evaluation of the validation or test split.
struct EvaluationRecord {
  std::int64_t iteration = 0;
  double loss = 0;
  double perplexity = 0;  ///< exp(min(20, loss))
  data::Split split = data::Split::valid;
  std::string set = {};  ///< name of a validation set; empty: the split itself
  /// BERT with a binary head: mean loss of the segment order over the samples, and its accuracy.
  std::optional<double> sop_loss = {}, sop_accuracy = {};
  std::int64_t consumed_samples = 0;
};

/// Continuations of fixed prompts by the model in training.
struct SampleRecord {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  struct Sample {
    std::string prompt;
    std::string text;  ///< the continuation alone, in UTF-8
  };
  std::vector<Sample> samples;
};

/// Figures of a task that a run measures besides its loss.
struct TaskRecord {
  std::int64_t iteration = 0;
  std::string task;
  std::vector<std::pair<std::string, double>> figures;  ///< "acc" and "acc_stderr", ...
  std::int64_t consumed_samples = 0;
};

/// Return to a checkpoint after a spike.
struct RewindRecord {
  Rewind rewind;
  std::int64_t first_high = 0;     ///< iteration of the spike's first loss
  double loss = 0;                 ///< its last loss; NaN if not finite
  SpikeHistory::Moments before{};  ///< moments of the losses before it
};
/// Returns "high losses from iteration 41 on, the last 5.1 against ...", and what the run does about them.
std::string text_of(const RewindRecord& record);

/// Receiver of records, on one rank of a run.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void write(const TrainRecord& record) = 0;
  virtual void write(const EvaluationRecord& record) = 0;
  virtual void write(const SampleRecord& record) = 0;
  virtual void write(const TaskRecord& record) = 0;
  virtual void write(const RewindRecord& record) = 0;
};

}  // namespace trireme::train
