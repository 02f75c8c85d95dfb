#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/execution_options.hpp"
#include "src/app/run_config/model_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/app/run_config/precision_options.hpp"
#include "src/plan/search/candidates.hpp"

namespace trireme::app {

/// Options of `trireme plan`. Those of a run have the same names and meanings as in `train`.
struct PlanOptions {
  std::string cluster;
  int nodes = 1;
  std::optional<int> ranks_per_node;
  std::vector<std::string> calibrate;
  bool no_search = false;
  int top = 10;
  bool json = false;
  bool constants = false;
  std::string cases;
  std::string batch_file, svg, trace_file, compare;
  bool show_schedule = false;
  std::optional<int> micro_batches;
  std::optional<int> data_ranks;
  ModelOptions model;
  ParallelOptions parallel;
  BatchOptions batch;
  PrecisionOptions precision;
  ExecutionOptions execution;

  void declare(Options& options);
  /// Throws ConfigError that names the given options which this form of the command does not use.
  void check_form(const Options& options) const;
  /// Returns the cluster, a preset or read from its file. Throws ConfigError with file and line.
  plan::Cluster read_cluster() const;
  /// Returns `cluster` with the costs measured by the calibration files, if any, for training in `dtype`. Throws
  /// DataError with file and line.
  plan::Cluster calibrated(plan::Cluster cluster, DType dtype) const;
  /// Returns the layouts to search on `cluster`, with one value for each given axis. Without a search its base is the
  /// job as `train` would run it. Throws one ConfigError that lists all problems.
  plan::SearchSpace space(const Options& options, const plan::Cluster& cluster);
};

/// Returns the options of `train` that run `job`, names and values: those of the model and the run in `options`, and
/// the layout.
std::vector<std::string> train_options(const Options& options, const plan::Job& job);

}  // namespace trireme::app
