#pragma once

#include <cstdint>

#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/checkpoint_options.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/app/run_config/execution_options.hpp"
#include "src/app/run_config/model_options.hpp"
#include "src/app/run_config/optimizer_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/app/run_config/precision_options.hpp"
#include "src/app/run_config/run_options.hpp"

namespace trireme::app {

/// Configuration of a training run. A RunConfigReader makes it; all else reads it.
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
  CheckpointOptions checkpoint;

  train::ExecutionConfig execution_config() const;
  train::TrainOptions train_options() const;
  train::RunSchedule schedule() const;
  /// Returns what the number of samples that a run of `iterations` iterations reads depends on.
  data::RunLength run_length(std::int64_t iterations) const;
  data::GptDataOptions gpt_data_options(const model::ModelConfig& config) const;
  /// `vocabulary` is that of the corpora.
  data::BertDataOptions bert_data_options(const model::ModelConfig& config, data::BertVocabulary vocabulary) const;
};

/// Makes a RunConfig of a command's options: declares them, and settles them after they were parsed.
class RunConfigReader {
 public:
  /// Declares the options of every group. `options` must live longer.
  explicit RunConfigReader(Options& options);
  RunConfigReader(const RunConfigReader&) = delete;
  RunConfigReader& operator=(const RunConfigReader&) = delete;

  /// Returns the options as parsed. Those of the grid and the device are final.
  const RunConfig& parsed() const { return config_; }
  /// Settles what depends on several options or on the number of data ranks. Throws one ConfigError that lists the
  /// problems of all groups.
  const RunConfig& settle(int data_ranks);

 private:
  Options& options_;
  RunConfig config_;
};

}  // namespace trireme::app
