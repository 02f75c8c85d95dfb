#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/train/finetune/best_scores.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {

/// Measures the model of one seed after its epochs, and keeps the scores of the best one.
class EpochScoring {
 public:
  /// Begins with the scores in `start`, the blobs of the checkpoint to continue from, and copies them to `blobs`, those
  /// of the checkpoints to save. An epoch has `epoch_iterations`. `task`, `data` and `blobs` must live longer.
  EpochScoring(const FinetuneTask& task, const TaskData& data, std::int64_t epoch_iterations,
               const std::map<std::string, std::string>& start, std::map<std::string, std::string>& blobs);

  /// Scores the validation data after an iteration of `trainer`, notes the result there and logs it. If it is the best
  /// so far, scores the test data as well, and replaces the blobs. Returns whether it is the best. Collective.
  bool evaluate(ParallelModel& model, Trainer& trainer);
  const BestScores& best() const { return best_; }

 private:
  const FinetuneTask& task_;
  const TaskData& data_;
  std::int64_t epoch_iterations_;
  std::map<std::string, std::string>& blobs_;
  BestScores best_;
};

}  // namespace trireme::train
