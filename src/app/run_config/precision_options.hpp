#pragma once

#include <optional>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/optim/adamw.hpp"
#include "src/optim/loss_scaler.hpp"
#include "src/train/guards/guard_options.hpp"

namespace trireme::app {

/// Options of the training type, its loss scale, and guards against bad numbers.
struct PrecisionOptions {
  DType dtype = DType::fp32;
  bool bf16 = false;
  bool fp16 = false;
  optim::LossScalerOptions loss_scale{.initial_scale = 4294967296};
  std::optional<double> constant_loss_scale;  ///< 0: dynamic, as without one
  bool no_check_for_nan = false;
  bool check_for_spiky_loss = false;
  std::optional<double> spiky_loss_factor;
  std::vector<std::int64_t> iterations_to_skip;
  train::GuardOptions guards;
  int max_skipped = 10;
  bool rewind_on_spike = false;
  train::RewindOptions rewinds;
  bool precision_aware = false;
  DType exp_avg_dtype = DType::fp32;
  DType exp_avg_sq_dtype = DType::fp32;
  std::optional<bool> fp8_is_hybrid;  ///< --fp8-format
  bool no_fp8_weight_gradients = false;
  bool first_last_layers_bf16 = false;
  int first_layers_in_bf16 = 1;
  int last_layers_in_bf16 = 1;
  parallel::Fp8Options fp8;

  void declare(Options& options);
  void declare_loss_scale(Options& options);
  void declare_rewinds(Options& options);
  /// Sets `dtype`, `fp8`, `loss_scale` and `guards` from the flags.
  void settle(const Options& options, Problems& problems);
  optim::AdamWOptions with_types(optim::AdamWOptions adamw) const {
    adamw.exp_avg_dtype = exp_avg_dtype;
    adamw.exp_avg_sq_dtype = exp_avg_sq_dtype;
    return adamw;
  }

 private:
  void declare_fp8(Options& options);
  void settle_fp8(const Options& options, Problems& problems);
  void check_moments(const Options& options, Problems& problems) const;
};

}  // namespace trireme::app
