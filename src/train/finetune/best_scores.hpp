#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/train/finetune/finetune_task.hpp"
#include "src/train/finetune/task_scoring.hpp"

namespace trireme::train {

/// Scores of one seed's best epoch: the one with the best result on the validation data. A checkpoint stores them in
/// its blobs, so that a continued run reports the same as one that was never stopped.
struct BestScores {
  TaskScores valid, test;

  /// Replaces the blobs of these scores.
  void put(const FinetuneTask& task, const TaskSplit& valid_split, const TaskSplit& test_split,
           std::map<std::string, std::string>& blobs) const;
  /// Returns the scores in `blobs` of these splits; scores of other data are left out, and empty.
  static BestScores from(const std::map<std::string, std::string>& blobs, const FinetuneTask& task,
                         const TaskSplit& valid_split, const TaskSplit& test_split);
};

/// Returns the logarithms of the seeds' mean probabilities.
TaskScores mean_of(const std::vector<BestScores>& seeds, TaskScores BestScores::*scores, bool are_spans);

/// Returns the median; of an even number of values, the mean of the middle two.
double median_of(std::vector<double> values);

}  // namespace trireme::train
