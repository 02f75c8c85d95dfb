#pragma once

#include <string>
#include <vector>

#include "src/app/options/named_tokenizer.hpp"
#include "src/app/options/options.hpp"
#include "src/train/finetune/finetune_task.hpp"

namespace trireme::app {

/// Returns "RACE, MNLI, ... or SQUAD".
std::string task_list();

/// Options that only SQuAD uses.
inline constexpr const char* squad_options[] = {"max-query-length",  "doc-stride",  "n-best-size",
                                                "max-answer-length", "n-best-file", "null-score-diff-threshold"};

/// Options of a task: its files, limits and results.
struct TaskOptions {
  train::FinetuneTask task;
  std::vector<std::string> train, valid, test;
  std::int64_t epochs = 3;
  int seeds = 1;
  bool skip_bad_lines = false;
  std::string predictions_file, n_best_file;
  std::string pretrained;  ///< checkpoint to start from
  NamedTokenizer tokenizer;

  void declare(Options& options);
  /// Declares only the options of predictions and their files.
  void declare_answers(Options& options);
  /// Throws ConfigError for options of another task.
  void check(const Options& options) const;
  /// Sets the output of a model of the task. Throws CheckpointError if the model cannot have it.
  void set_output(model::ModelConfig& config) const;
};

}  // namespace trireme::app
