#pragma once

#include <optional>

#include "src/app/run_config/job_options.hpp"
#include "src/app/run_config/problems.hpp"
#include "src/model/layers/recomputation.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::app {

/// Options of the training type.
struct PrecisionOptions {
  DType dtype = DType::fp32;
  bool bf16 = false;
  bool fp16 = false;

  void declare(Options& options);
  /// Sets `dtype` from the flags.
  void settle(const Options& options, Problems& problems);
};

/// Options of what data ranks keep in shards, and how they reduce and gather.
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
  parallel::DataParallelOptions data_parallel(DType dtype) const;
};

/// Options of how a grid executes a step.
struct ExecutionOptions {
  std::optional<parallel::ScheduleKind> schedule;
  bool sequence_parallel = false;
  bool overlap_p2p = false;
  bool no_scatter_gather = false;
  bool no_async_tensor_all_reduce = false;
  bool cuda_graphs = false;
  model::Recomputation recomputation;
  bool recompute_activations = false;

  void declare(Options& options);
  /// Sets `recomputation` from the flag.
  void settle(const Options& options, const GridOptions& grid, Problems& problems);
  /// Checks what CUDA graphs do not go with.
  void check_graphs(const DeviceOptions& device, Problems& problems) const;
};

}  // namespace trireme::app
