#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/train/run.hpp"

namespace trireme::app {

/// Tasks in lm-eval's definition that a run measures; see BenchmarkOptions.
struct RunTaskOptions {
  std::string names, path;
  std::int64_t shots = 0;
  std::optional<std::int64_t> limit;
};

/// Options of when a run reports, evaluates and ends, and of its files besides checkpoints.
struct RunOptions {
  train::RunSchedule schedule;  ///< without the interval of checkpoints (CheckpointOptions)
  RunTaskOptions tasks;
  std::string kill_switch;  ///< file that stops the run when it appears
  std::string metrics_file;
  std::string sample_prompts;  ///< file of prompts that the model continues while it trains; empty: none
  std::int64_t sample_tokens = 64;
  double sample_temperature = 1;
  std::string trace_file;
  bool time_communication = false;
  train::Trainer::Observations observations;
  bool log_options = false;
  bool dry_run = false;
  bool no_selftest = false;

  /// Returns the files that a run writes besides checkpoints and folders, with `suffix` after the given names.
  std::vector<std::string> outputs(const std::string& suffix = "") const;

  void declare_intervals(Options& options, RunKind kind = RunKind::pretraining);
  void declare(Options& options);
  /// Sets the iterations of an evaluation; 0 by default with sequential sampling.
  /// `model` is that of the run, if it is valid.
  void settle(const Options& options, const DataOptions& data, const std::optional<model::ModelConfig>& model,
              Problems& problems);
};

}  // namespace trireme::app
