#pragma once

#include <string>
#include <vector>

#include "src/app/options/named_tokenizer.hpp"
#include "src/app/options/options.hpp"
#include "src/data/tasks/glue.hpp"
#include "src/data/tasks/squad_predictions.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

enum class FinetuneTask { race, mnli, qqp, squad };

/// Options of a task: its files, limits and results.
struct TaskOptions {
  FinetuneTask task = FinetuneTask::race;
  std::vector<std::string> train, valid, test;
  std::int64_t epochs = 3;
  int seeds = 1;
  bool skip_bad_lines = false;
  std::int64_t max_query_length = 64;
  std::int64_t doc_stride = 128;
  data::SquadPredictionOptions prediction;
  std::string predictions_file, n_best_file;
  std::string pretrained;  ///< checkpoint to begin with
  NamedTokenizer tokenizer;

  void declare(Options& options);
  /// Throws ConfigError for options of another task.
  void check(const Options& options) const;
  /// Returns "RACE".
  const char* name() const;
  /// The task, which is MNLI or QQP.
  data::GlueTask glue_task() const { return task == FinetuneTask::mnli ? data::GlueTask::mnli : data::GlueTask::qqp; }
  /// Sets what a model of the task predicts. Throws CheckpointError if it cannot.
  void set_output(model::ModelConfig& config) const;
};

}  // namespace trireme::app
