#include "src/app/reporting/report_options.hpp"

namespace trireme::app {
namespace {

/// Options that say what stands in TensorBoard's files, and do nothing without these.
constexpr const char* tensorboard_options[] = {
    "tensorboard-log-interval",           "log-timers-to-tensorboard",     "log-memory-to-tensorboard",
    "log-validation-ppl-to-tensorboard",  "log-world-size-to-tensorboard", "no-log-loss-scale-to-tensorboard",
    "no-log-learning-rate-to-tensorboard"};

}  // namespace

void ReportOptions::declare(Options& options) {
  options.add("tensorboard-dir", &tensorboard.folder, "DIR",
              "Write event files for TensorBoard, under Megatron-LM's names: losses, learning rate, batch size, loss "
              "scale, gradient norm. A run that resumes removes later points first, so that no step occurs twice.");
  options.add("tensorboard-log-interval", &tensorboard.log_interval, "N", "Iterations between points.", at_least(1));
  options.add_flag("log-timers-to-tensorboard", &tensorboard.timers,
                   "Add the time of an iteration in seconds, the mean since the point before.");
  options.add_flag("log-memory-to-tensorboard", &tensorboard.memory,
                   "Add the bytes that rank 0 has allocated, now and at most so far.");
  options.add_flag("log-validation-ppl-to-tensorboard", &tensorboard.perplexity, "Add perplexities of evaluations.");
  options.add_flag("log-world-size-to-tensorboard", &tensorboard.world_size, "Add the number of ranks.");
  options.add_flag("no-log-loss-scale-to-tensorboard", &no_loss_scale_, "Leave out the loss scale.");
  options.add_flag("no-log-learning-rate-to-tensorboard,no-log-learnig-rate-to-tensorboard", &no_learning_rate_,
                   "Leave out the learning rate.");
}

void ReportOptions::settle() {
  tensorboard.learning_rate = !no_learning_rate_;
  tensorboard.loss_scale = !no_loss_scale_;
}

std::string ReportOptions::idle(const Options& options) const {
  std::string names;
  for (const char* name : tensorboard_options) {
    if (tensorboard.folder.empty() && options.given(name))
      names += fmt::format("{}--{}", names.empty() ? "" : ", ", name);
  }
  return names.empty() ? "" : names + ": without --tensorboard-dir there is nothing to write";
}

}  // namespace trireme::app
