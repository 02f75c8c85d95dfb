#pragma once

#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/optim/lr_schedule.hpp"
#include "src/optim/make_optimizer.hpp"

namespace trireme::app {

/// Options of the optimizer and its learning rate.
struct OptimizerOptions {
  optim::OptimizerOptions optimizer;
  optim::LrSchedule lr;
  std::optional<std::int64_t> lr_warmup_iterations;
  std::optional<std::int64_t> lr_warmup_samples;
  std::optional<double> lr_warmup_fraction;
  std::optional<std::int64_t> lr_decay_iterations;
  std::optional<std::int64_t> lr_decay_samples;
  std::optional<std::int64_t> lr_wsd_decay_iterations;
  std::optional<std::int64_t> lr_wsd_decay_samples;
  std::optional<double> start_weight_decay;
  std::optional<double> end_weight_decay;
  /// Growth of the weight decay; none: constant.
  std::optional<optim::WeightDecayStyle> weight_decay_style;
  std::optional<optim::WeightDecayRamp> weight_decay_ramp;
  bool no_split_qkv = false;
  std::optional<double> decoupled_lr;
  std::optional<double> decoupled_min_lr;
  std::optional<train::DecoupledRate> decoupled_rate;
  double clip_grad = 1;
  std::string grad_norm_type = "2";
  int grad_norm_power = 2;

  void declare(Options& options);
  /// Sets the learning rate schedule for a run of the length in `batch`.
  void settle(const Options& options, const BatchOptions& batch, Problems& problems);

 private:
  void settle_learning_rate(const Options& options, const BatchOptions& batch, Problems& problems);
  void settle_wsd(const Options& options, const char* unit, Problems& problems);
  void settle_decoupled_rate(const Options& options, Problems& problems);
  void settle_clipping(Problems& problems);
  void settle_weight_decay(const Options& options, const BatchOptions& batch, Problems& problems);
};

}  // namespace trireme::app
