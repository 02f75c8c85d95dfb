#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/app/commands/finetune/task_data.hpp"
#include "src/data/tasks/squad_metrics.hpp"
#include "src/train/evaluation/task_scoring.hpp"

namespace trireme::app {

/// Measurement of a model on the examples of a split.
struct TaskResult {
  double score = 0;  ///< accuracy, or SQuAD's F1, from 0 to 1
  std::int64_t correct = 0, total = 0;
  std::optional<data::SquadScores> squad;
  std::map<std::string, data::SquadPrediction> predictions;  ///< by question

  /// Returns "accuracy 93.75 % (150 of 160)", or SQuAD's figures.
  std::string text() const;
  /// Returns the figures as members of a JSON object, without braces.
  std::string json() const;
};

/// Measures `scores`, which are those of the split's samples.
TaskResult measure(const TaskOptions& options, const TaskSplit& split, const train::TaskScores& scores);

/// Writes the files of predictions that the options name. Throws IoError.
void write_predictions(const TaskOptions& options, const TaskResult& result);

}  // namespace trireme::app
