#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/tasks/glue.hpp"
#include "src/data/tasks/squad_answers.hpp"
#include "src/data/tasks/task_samples.hpp"
#include "src/model/model_config.hpp"

namespace trireme::train {

/// Returns the names of the tasks: RACE, GLUE's and SQUAD.
std::vector<std::string_view> task_names();

/// Task to fine-tune a model for, and the settings that affect its samples or score.
struct FinetuneTask {
  std::string_view name = "RACE";                ///< one of task_names()
  std::int64_t max_query_length = 64;            ///< SQuAD: tokens of a question; longer ones are truncated
  std::int64_t doc_stride = 128;                 ///< SQuAD: tokens between the starts of a long context's windows
  data::SquadPredictionOptions prediction = {};  ///< SQuAD

  bool is_race() const { return name == "RACE"; }
  bool is_squad() const { return name == "SQUAD"; }
  /// Returns null for other tasks than GLUE's.
  const data::GlueTask* glue() const { return data::find_glue_task(name); }
  /// Returns the metrics whose mean is the score, by which the best epoch is chosen.
  std::span<const data::Metric> metrics() const;
  /// Returns whether the model predicts a value instead of classes.
  bool is_regression() const { return glue() != nullptr && glue()->classes.empty(); }
  /// Sets the output and the classes of a model for the task.
  void set_output(model::ModelConfig& config) const;
};

/// Examples for one use: training, validation or test.
struct TaskSplit {
  std::string digest;  ///< digest of the files' bytes
  std::unique_ptr<data::SquadFile> squad_file;
  std::unique_ptr<data::SquadExamples> squad;
  std::unique_ptr<data::TaskSamples> samples;  ///< null if no test split was given
  std::vector<std::int64_t> ids;               ///< numbers of GLUE's examples
  /// Given files or folders with labels, and the number of labels of each, in order. Empty for SQuAD.
  std::vector<std::pair<std::string, std::int64_t>> sets;
  bool has_labels = true;
};

/// Data to train and evaluate a task on.
struct TaskData {
  TaskSplit train, valid, test;
};

}  // namespace trireme::train
