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
  std::vector<std::string> logits_samples;
  std::int64_t cross_entropy_chunks = 1;
  ZeroShotOptions zero_shot;
  SavedModelOptions model;

  void declare(Options& options);
  /// Returns the numbers of the samples whose logits are written. Throws ConfigError.
  std::vector<std::int64_t> checked_logits_samples() const;
};

/// Returns "LAMBADA".
std::string name_of(EvalTask task);

}  // namespace trireme::app
