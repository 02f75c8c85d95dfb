#pragma once

#include <string>

#include "io/metrics/tensorboard_file.hpp"
#include "src/app/options/options.hpp"

namespace trireme::app {

/// Options of what a run reports to its operators beside the log and `--metrics-file`.
struct ReportOptions {
  io::TensorboardOptions tensorboard;

  void declare(Options& options);
  void settle();
  /// Returns the options that do nothing in this run and the reason, for a line of the log; empty where all do.
  std::string idle(const Options& options) const;

 private:
  bool no_learning_rate_ = false, no_loss_scale_ = false;
};

}  // namespace trireme::app
