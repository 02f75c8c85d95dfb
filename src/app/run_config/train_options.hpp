#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/app/run_config/checkpoint_options.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/app/run_config/execution_options.hpp"
#include "src/app/run_config/job_options.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/model/initialisation.hpp"
#include "src/train/run.hpp"

namespace trireme::app {

/// The options of `trireme train`, as given, and what they come to.
struct TrainCommandOptions {
  ModelOptions model;
  GridOptions grid;

  // Training
  std::int64_t sequence_length = 0;
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> global_batch_size;
  std::vector<std::string> ramp_up_text;
  std::optional<train::BatchRampUp> ramp_up;
  bool decrease_batch_size = false;
  train::LossAverage loss_average = train::LossAverage::tokens;
  std::optional<std::int64_t> train_iterations;  ///< either these
  std::optional<std::int64_t> train_samples;     ///< or those
  std::uint64_t seed = 1234;
  PrecisionOptions precision;
  ExecutionOptions execution;
  model::Initialisation initialisation;
  ShardingOptions sharding;

  // Optimizer
  optim::LrSchedule lr;
  std::optional<std::int64_t> lr_warmup_iterations;
  std::optional<std::int64_t> lr_warmup_samples;
  std::optional<std::int64_t> lr_decay_iterations;
  std::optional<std::int64_t> lr_decay_samples;
  std::optional<double> lr_warmup_fraction;
  optim::OptimizerOptions optimizer;
  double clip_grad = 1;
  optim::LossScalerOptions loss_scale{.initial_scale = 4294967296};
  std::optional<double> constant_loss_scale;
  int max_skipped = 10;

  DataOptions data;

  // Run
  train::RunSchedule run;
  CheckpointOptions checkpoint;
  std::string metrics_file;
  std::string trace_file;
  bool dry_run = false;

  void declare(Options& options);
  /// Settles what depends on several options; throws one ConfigError that lists every problem.
  void settle(const Options& options, int data_ranks);

  train::ExecutionConfig layout() const;
  parallel::DataParallelOptions data_parallel() const;
  train::TrainOptions training() const;
  /// The global batches of `data_ranks` data ranks. ConfigError where they cannot be.
  train::BatchSchedule batches(int data_ranks) const;
  /// Iterations of the whole run, of which `done` are behind it.
  std::int64_t iterations(const train::Progress& done, int data_ranks) const;
  data::RunLength run_length(std::int64_t iterations) const;

 private:
  void settle_learning_rate(const Options& options, const std::function<void(bool, const std::string&)>& expect);
};

}  // namespace trireme::app
