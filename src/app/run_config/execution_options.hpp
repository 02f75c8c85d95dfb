#pragma once

#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/model/blocks/recomputation.hpp"

namespace trireme::app {

void declare_cross_entropy_chunks(Options& options, std::int64_t* chunks);

/// Options of how a rank executes its layers.
struct ExecutionOptions {
  bool cuda_graphs = false;
  model::Recomputation recomputation;
  bool recompute_activations = false;
  std::vector<std::string> recompute_modules = {"core_attn", "activation"};
  std::int64_t cross_entropy_chunks = 1;

  void declare(Options& options);
  /// Sets `recomputation` from the flag and the modules.
  void settle(const Options& options, const ParallelOptions& parallel, const DeviceOptions& device, Problems& problems);
  train::ExecutionConfig config(DType dtype, const BatchOptions& batch, const ParallelOptions& parallel,
                                const MaskingOptions& masking) const;
};

}  // namespace trireme::app
