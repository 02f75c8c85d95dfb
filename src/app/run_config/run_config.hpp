#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/checkpoint_options.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/app/run_config/execution_options.hpp"
#include "src/app/run_config/model_options.hpp"
#include "src/app/run_config/optimizer_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/app/run_config/precision_options.hpp"
#include "src/app/run_config/report_options.hpp"
#include "src/app/run_config/run_options.hpp"
#include "src/report/run.hpp"

namespace trireme::app {

/// Configuration of a training run, made by a RunConfigReader.
struct RunConfig {
  ModelOptions model;
  InitialisationOptions initialisation;
  ParallelOptions parallel;
  DeviceOptions device;
  BatchOptions batch;
  std::uint64_t seed = 1234;  ///< for initial weights, dropout and the order of samples
  PrecisionOptions precision;
  ExecutionOptions execution;
  OptimizerOptions optimizer;
  DataOptions data;
  RunOptions run;
  ReportOptions report;
  CheckpointOptions checkpoint;
  std::vector<report::OptionValue> option_values;  ///< all options of the command, for the record of the run

  /// Changes the value of an option in the records of the run: one that a part of the run, such as a seed, has for
  /// itself.
  void record(std::string_view name, std::string value);
  /// Returns a line `name = value` for each option, after "# " unless it was given: for the record of a checkpoint,
  /// in UTF-8.
  std::string options_text() const;
  train::ExecutionConfig execution_config() const;
  train::TrainOptions train_options() const;
  train::RunSchedule schedule() const;
  /// Returns the settings that determine how many samples a run of `iterations` iterations reads.
  data::RunLength run_length(std::int64_t iterations) const;
  data::GptDataOptions gpt_data_options(const model::ModelConfig& config) const;
  /// `vocabulary` is that of the corpora.
  data::BertDataOptions bert_data_options(const model::ModelConfig& config, data::BertVocabulary vocabulary) const;
};

/// Run of a task, with its model and data, which precede its other options.
struct TaskRun {
  model::ModelConfig model;
  std::int64_t sequence_length = 0;
  std::int64_t labels = 0;  ///< examples of an epoch
  std::int64_t epochs = 0;
};

/// Makes a RunConfig from a command's options: declares them, and settles them once they are parsed.
class RunConfigReader {
 public:
  /// Declares the options of every group; for a task without the model's shape, corpora and the length of the run.
  /// `options` must live longer.
  explicit RunConfigReader(Options& options, RunKind kind = RunKind::pretraining);
  RunConfigReader& operator=(RunConfigReader&&) = delete;

  /// Returns the options as parsed. Those of the grid and the device are final.
  const RunConfig& parsed() const { return config_; }
  /// Returns the files and folders that the run reads besides checkpoints. Throws as DataOptions::stages.
  std::vector<std::string> inputs() const;
  /// Takes the model, its dropout and the sequence length from a checkpoint, as ModelOptions::take does. Call it before
  /// `settle`. Throws CheckpointError for a model of a task.
  std::vector<std::string> take_model(const Attributes& stored);
  /// Settles values that depend on several options or on the number of data ranks. Throws one ConfigError that lists
  /// the problems of all groups.
  const RunConfig& settle(int data_ranks);
  /// Likewise for a task. Batches are given in examples; those of the RunConfig are in samples. An epoch has the full
  /// global batches of its examples; the model is evaluated and saved after each epoch.
  const RunConfig& settle(int data_ranks, const TaskRun& task);

 private:
  void settle_training(int data_ranks, const std::optional<model::ModelConfig>& model, Problems& problems);
  void finish(const std::optional<model::ModelConfig>& model, Problems& problems);

  Options& options_;
  RunConfig config_;
};

}  // namespace trireme::app
