#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/data/tasks/squad_answers.hpp"
#include "src/train/finetune/finetune_task.hpp"
#include "src/train/finetune/task_scoring.hpp"

namespace trireme::train {

/// Measurement of a model on the examples of a split.
struct TaskResult {
  double score = 0;  ///< accuracy, or SQuAD's F1, from 0 to 1
  std::int64_t correct = 0, total = 0;
  std::optional<data::SquadScores> squad;
  std::map<std::string, data::SquadPrediction> predictions;  ///< by question
  std::vector<std::int32_t> classes;                         ///< predicted for each label, except for SQuAD
  bool has_labels = true;                                    ///< without them there are predictions and no score

  /// Returns "accuracy 93.75 % (150 of 160)", SQuAD's figures, or without labels "160 predictions".
  std::string text() const;
};

/// Measures the `scores` of the split's samples.
TaskResult measure(const FinetuneTask& task, const TaskSplit& split, const TaskScores& scores);

}  // namespace trireme::train
