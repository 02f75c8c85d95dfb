#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/train/finetune/finetune_task.hpp"
#include "src/train/finetune/task_scoring.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {

/// Scores of one seed's best epoch, the one with the best result on the validation data. A checkpoint stores them in
/// its blobs, so that a resumed run reports the same as an uninterrupted one.
struct BestScores {
  TaskScores valid, test;

  /// Replaces the blobs of these scores.
  void put(const FinetuneTask& task, const TaskSplit& valid_split, const TaskSplit& test_split,
           std::map<std::string, std::string>& blobs) const;
  /// Returns the scores of these splits in `blobs`; empty scores if `blobs` has those of other data.
  static BestScores from(const std::map<std::string, std::string>& blobs, const FinetuneTask& task,
                         const TaskSplit& valid_split, const TaskSplit& test_split);
};

/// Throws NumericalError for scores that are not finite; `split` names their data: "validation".
void check_finite(const TaskScores& scores, const char* split);
/// Returns the scores of several models together: the logarithms of their mean probabilities, or their mean values or,
/// for spans, logits.
TaskScores mean_of(const FinetuneTask& task, std::vector<TaskScores> models);

/// Returns the median; for an even number of values, the mean of the middle two.
double median_of(std::vector<double> values);

/// Evaluates the model of one seed after each epoch, and keeps the scores of the best one.
class EpochScoring {
 public:
  /// Starts from the scores in `start`, the blobs of the checkpoint to resume, and copies them to `blobs`, those of the
  /// checkpoints to save. An epoch has `epoch_iterations`. `task`, `data` and `blobs` must outlive it.
  EpochScoring(const FinetuneTask& task, const TaskData& data, std::int64_t epoch_iterations,
               const std::map<std::string, std::string>& start, std::map<std::string, std::string>& blobs);

  /// Scores the validation data after an iteration of `trainer`, records the result there and logs it. If it is the
  /// best so far, also scores the test data and replaces the blobs. Returns whether it is the best. Collective.
  bool evaluate(ParallelModel& model, Trainer& trainer);
  const BestScores& best() const { return best_; }

 private:
  const FinetuneTask& task_;
  const TaskData& data_;
  std::int64_t epoch_iterations_;
  std::map<std::string, std::string>& blobs_;
  BestScores best_;
  std::optional<double> earlier_score_;  // score of an earlier run, until the first evaluation
};

}  // namespace trireme::train
