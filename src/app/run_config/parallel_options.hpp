#pragma once

#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/model_options.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/train/train_options.hpp"

namespace trireme::app {

/// Names of checkpoint files have five digits for the rank.
constexpr int max_ranks = 99999;

/// Range of a number of ranks along one axis of the grid.
constexpr Range rank_count() { return between(1, max_ranks); }

/// Types to train in, and those without fp64.
inline constexpr Choice<DType> training_types[] = {
    {"fp64", DType::fp64}, {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}};
inline constexpr std::span types_without_fp64 = std::span(training_types).subspan<1>();

void declare_schedule(Options& options, std::optional<parallel::ScheduleKind>* schedule);

/// Options of the grid, for every command that runs a model.
struct GridOptions {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  int expert = 1;
  std::optional<int> expert_tensor;  ///< default: `tensor`
  parallel::PipelineSplit split;     ///< without its list of layers (`pipeline_layout`)
  std::string pipeline_layout;
  std::int64_t vocabulary_multiple = 128;
  std::int64_t padded_vocabulary = 0;

  /// Declares the sizes of the grid's axes, and of its expert groups.
  void declare_sizes(Options& options);
  void declare(Options& options, const std::string& title = "Grid (data ranks: ranks / (tensor x pipeline x context))");
  /// Returns the grid of `ranks` ranks with `data` data ranks, 0: those that are left. Throws ConfigError.
  parallel::ProcessGrid of(int ranks, int data = 0) const;
  /// Returns how the layers are split. Throws ConfigError if the list of layers is malformed.
  parallel::PipelineSplit pipeline_split() const;
};

/// Options of the state that is sharded over the data ranks, and of its reduction and gathering.
struct ShardingOptions {
  bool distributed_optimizer = false;
  std::optional<parallel::DataSharding> strategy;
  std::optional<DType> gradient_type;
  bool fp32_gradients = false;
  bool overlap_reduce = false;
  bool overlap_gather = false;
  std::optional<std::int64_t> bucket_elements;
  bool cpu_offload = false;
  std::optional<double> offload_fraction;

  void declare(Options& options);
  /// Sets `strategy` and `gradient_type` from the flags, for training in `dtype`.
  void settle(DType dtype, Problems& problems);
  parallel::DataParallelOptions config(DType dtype) const;
  /// State of the optimizer in host memory.
  optim::Offload offload() const { return {.fraction = cpu_offload ? offload_fraction.value_or(1) : 0}; }
};

/// Options of the division of work among ranks and of their communication.
struct ParallelOptions {
  GridOptions grid;
  std::optional<parallel::ScheduleKind> schedule;
  bool overlap_p2p = false;
  bool no_scatter_gather = false;
  bool sequence_parallel = false;
  bool no_async_tensor_all_reduce = false;
  int row_chunks = 1;
  bool registered_buffers = false;
  bool exchange_tokens = false;
  double expert_load = 1;
  bool overlap_shared_expert = false;
  bool pad_experts = false;
  ShardingOptions sharding;

  /// Declares all options except those of the grid and the shards, which have separate sections.
  void declare(Options& options);
  /// Settles the shards for training in `dtype`. Checks that the pipeline can split the layers of `model`, if any.
  void settle(DType dtype, const std::optional<model::ModelConfig>& model, Problems& problems);
  train::ParallelConfig config(DType dtype) const;
};

}  // namespace trireme::app
