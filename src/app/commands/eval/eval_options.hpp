#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/app/commands/eval/zero_shot_task.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"

namespace trireme::app {

/// Options of `trireme eval`.
struct EvalOptions {
  EvalTask task = EvalTask::perplexity;
  std::string data_path;
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> sequence_length;
  std::string logits_file;
  std::vector<std::int64_t> logits_samples = {0};
  std::int64_t cross_entropy_chunks = 1;
  ZeroShotOptions zero_shot;
  SavedModelOptions model;

  void declare(Options& options);
  /// Throws ConfigError for options that the task does not use.
  void check(const Options& options) const;
};

/// Returns "LAMBADA".
std::string_view name_of(EvalTask task);

}  // namespace trireme::app
