#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/data/tasks/glue.hpp"
#include "src/data/tasks/squad_answers.hpp"
#include "src/data/tasks/task_samples.hpp"
#include "src/model/model_config.hpp"

namespace trireme::train {

enum class TaskKind { race, mnli, qqp, squad };

/// A task to fine-tune a model for, and the settings that change its samples or its score.
struct FinetuneTask {
  TaskKind kind = TaskKind::race;
  std::int64_t max_query_length = 64;       ///< SQuAD: tokens of a question; the rest is cut off
  std::int64_t doc_stride = 128;            ///< SQuAD: tokens from a window of a long context to the next
  data::SquadPredictionOptions prediction;  ///< SQuAD

  /// Returns "RACE".
  const char* name() const;
  /// Returns GLUE's task, for the kinds MNLI and QQP.
  data::GlueTask glue_task() const { return kind == TaskKind::mnli ? data::GlueTask::mnli : data::GlueTask::qqp; }
  /// Sets the output and the classes of a model of the task.
  void set_output(model::ModelConfig& config) const;
};

/// Examples of one use: training, validation or test.
struct TaskSplit {
  std::string digest;  ///< digest of the bytes of the files
  std::unique_ptr<data::SquadFile> squad_file;
  std::unique_ptr<data::SquadExamples> squad;
  std::unique_ptr<data::TaskSamples> samples;  ///< null: a test split that was not given
  std::vector<std::int64_t> ids;               ///< numbers of GLUE's examples
  bool has_labels = true;
};

/// Data that a task is trained and measured on.
struct TaskData {
  TaskSplit train, valid, test;
};

}  // namespace trireme::train
