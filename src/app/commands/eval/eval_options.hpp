#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/app/commands/eval/zero_shot_task.hpp"
#include "src/app/options/options.hpp"
#include "src/app/saved_model.hpp"

namespace trireme::app {

/// Options of `trireme eval`.
struct EvalOptions {
  EvalTask task = EvalTask::perplexity;
  std::string data_path;
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> sequence_length;
  ZeroShotOptions zero_shot;
  SavedModelOptions model;

  void declare(Options& options);
};

/// Returns "LAMBADA".
std::string name_of(EvalTask task);

}  // namespace trireme::app
