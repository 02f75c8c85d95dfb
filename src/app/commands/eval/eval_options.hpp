#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/app/commands/eval/benchmark_run.hpp"
#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"

namespace trireme::app {

enum class EvalTask {
  perplexity,
  wikitext103,
  lambada,
  benchmarks,  ///< one or several of data::benchmarks()
  fine_tuned   ///< one of train::task_names()
};

/// Options of `trireme eval`.
struct EvalOptions {
  std::string tasks = "perplexity";  ///< names, separated by commas
  EvalTask task = EvalTask::perplexity;
  std::vector<std::string> benchmarks;  ///< names as given
  BenchmarkOptions benchmark;
  std::string output;
  TaskOptions fine_tuned;
  std::vector<std::string> ensemble;  ///< further models
  std::vector<std::string> data_paths;
  std::string data_path;  ///< the only one
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> sequence_length;
  std::string logits_file;
  std::vector<std::int64_t> logits_samples = {0};
  std::int64_t cross_entropy_chunks = 1;
  std::optional<std::int64_t> overlapping_eval;
  std::optional<data::Detokenizer> detokenizer;  ///< empty: by the file's path
  bool strict_lambada = false;
  std::optional<bool> cut_long_examples;  ///< empty: those of published tasks
  bool skip_bad_lines = false;
  SavedModelOptions model;

  void declare(Options& options);
  /// Finds the tasks. Throws ConfigError for unknown ones, and for options that they do not use.
  void check(const Options& options);
};

}  // namespace trireme::app
