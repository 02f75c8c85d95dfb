#pragma once

#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/model_options.hpp"
#include "src/train/train_options.hpp"

namespace trireme::app {

/// Names of checkpoints' files have five digits for the rank.
constexpr int max_ranks = 99999;

/// Range of a number of ranks along one axis of the grid.
constexpr Range rank_count() { return between(1, max_ranks); }

/// Declares the option `--schedule`.
void declare_schedule(Options& options, std::optional<parallel::ScheduleKind>* schedule);

/// Options of the grid, for every command that runs a model.
struct GridOptions {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  parallel::PipelineSplit split;  ///< without its list of layers (`pipeline_layout`)
  std::string pipeline_layout;
  std::int64_t vocabulary_multiple = 128;
  std::int64_t padded_vocabulary = 0;

  /// Declares the sizes of the grid's axes.
  void declare_sizes(Options& options);
  void declare(Options& options, const std::string& title = "Grid (data ranks: ranks / (tensor x pipeline x context))");
  /// Returns how the layers are to be divided. ConfigError if the list of layers is none.
  parallel::PipelineSplit pipeline_split() const;
};

/// Options of state that the data ranks keep in shards, and of how they reduce and gather it.
struct ShardingOptions {
  bool distributed_optimizer = false;
  std::optional<parallel::DataSharding> strategy;
  std::optional<DType> gradient_type;
  bool fp32_gradients = false;
  bool overlap_reduce = false;
  bool overlap_gather = false;
  std::optional<std::int64_t> bucket_elements;

  void declare(Options& options);
  /// Sets `strategy` and `gradient_type` from the flags, for training in `dtype`.
  void settle(DType dtype, Problems& problems);
  parallel::DataParallelOptions config(DType dtype) const;
};

/// Options of how the ranks of a run divide the work and communicate.
struct ParallelOptions {
  GridOptions grid;
  std::optional<parallel::ScheduleKind> schedule;
  bool overlap_p2p = false;
  bool no_scatter_gather = false;
  bool sequence_parallel = false;
  bool no_async_tensor_all_reduce = false;
  ShardingOptions sharding;

  /// Declares all but the grid and the shards, which have sections of their own.
  void declare(Options& options);
  /// Settles the shards for training in `dtype`, and checks that the layers of `model`, if any, divide by
  /// the pipeline.
  void settle(DType dtype, const std::optional<model::ModelConfig>& model, Problems& problems);
  train::ParallelConfig config(DType dtype) const;
};

}  // namespace trireme::app
