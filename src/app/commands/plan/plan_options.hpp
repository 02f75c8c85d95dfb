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

/// Options of `trireme plan`. Those of a run have the names and the meaning that `train` gives them.
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
  /// Throws ConfigError that names the options given which this form of the command does not read.
  void check_form(const Options& options) const;
  /// Returns the cluster, whose file it reads. ConfigError, with file and line, for what is none.
  plan::Cluster read_cluster() const;
  /// Returns `cluster` with what the calibration files, if any, measured for training in `dtype`. DataError, with file
  /// and line, for what is no measurement.
  plan::Cluster calibrated(plan::Cluster cluster, DType dtype) const;
  /// Returns the layouts to search on `cluster`: axes that are given have one value. Without a search its base is the
  /// job as `train` would run it. Throws one ConfigError that lists all problems.
  plan::SearchSpace space(const Options& options, const plan::Cluster& cluster);
};

/// Returns `names` and values of options of `train` that run `job`: those of the model and of the run as `options` has
/// them, and the layout.
std::vector<std::string> train_options(const Options& options, const plan::Job& job);

}  // namespace trireme::app
