#pragma once

#include <optional>

#include "src/app/options/options.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/problems.hpp"
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
  double clip_grad = 1;

  void declare(Options& options);
  /// Sets the learning rate's schedule for a run as long as `batch` says.
  void settle(const Options& options, const BatchOptions& batch, Problems& problems);

 private:
  void settle_learning_rate(const Options& options, const BatchOptions& batch, Problems& problems);
};

}  // namespace trireme::app
