#pragma once

#include <map>
#include <string>

#include "src/app/commands/finetune/task_data.hpp"
#include "src/infer/task_scoring.hpp"

namespace trireme::app {

/// Scores of one seed's best epoch: that with the best result on the validation data. A checkpoint keeps them among its
/// blobs, so that a run that continues reports the same as one that was never stopped.
struct BestScores {
  infer::TaskScores valid, test;

  /// Replaces the blobs of these scores.
  void put(const TaskOptions& options, const TaskSplit& valid_split, const TaskSplit& test_split,
           std::map<std::string, std::string>& blobs) const;
  /// Returns those of `blobs` that belong to the splits; the others are empty.
  static BestScores from(const std::map<std::string, std::string>& blobs, const TaskOptions& options,
                         const TaskSplit& valid_split, const TaskSplit& test_split);
};

/// Returns the logarithms of the seeds' mean probabilities.
infer::TaskScores mean_of(const std::vector<BestScores>& seeds, infer::TaskScores BestScores::*scores, bool are_spans);

}  // namespace trireme::app
