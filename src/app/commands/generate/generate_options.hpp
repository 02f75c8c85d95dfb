#pragma once

#include <cstdint>
#include <string>

#include "src/app/commands/generate/prompt_batch.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/infer/generation.hpp"

namespace trireme::app {

/// Options of `trireme generate`.
struct GenerateOptions {
  std::string prompt;
  std::int64_t max_new_tokens = 100;
  infer::SamplingOptions sampling;
  PromptBatchOptions batch;
  SavedModelOptions model;

  void declare(Options& options);
};

}  // namespace trireme::app
