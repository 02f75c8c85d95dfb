#pragma once

#include <string>
#include <vector>

#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/infer/generation.hpp"

namespace trireme::app {

/// Options of `generate` that continue the prompts of a file.
struct PromptBatchOptions {
  std::string prompts;
  std::string output;
  bool resume = false;
  std::int64_t batch_size = 8;
  std::vector<std::string> stop;
  std::optional<std::int64_t> log_probabilities;

  void declare(Options& options);
  /// Throws ConfigError if the options contradict each other, or need --prompts and it is not given.
  void check(const Options& options) const;
};

/// Continues the prompts of a file, each by `max_new_tokens` at most unless its line sets another number, and writes
/// the results in their order. Collective. Throws DataError that names the file and line of a prompt that cannot be
/// used, before anything is generated.
void continue_prompts(Job& job, SavedModel& saved, const data::Tokenizer& tokenizer, const PromptBatchOptions& batch,
                      const infer::SamplingOptions& sampling, std::int64_t max_new_tokens);

}  // namespace trireme::app
