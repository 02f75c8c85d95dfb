#pragma once

#include <string>
#include <vector>

#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/infer/generation.hpp"

namespace trireme::app {

/// Options of `trireme generate`.
struct GenerateOptions {
  std::string prompt;
  std::int64_t max_new_tokens = 100;
  infer::SamplingOptions sampling;
  std::string prompts;                     ///< file of prompts
  std::optional<std::int64_t> text_count;  ///< texts from nothing, instead of prompts
  // Options of many texts.
  std::string output;
  bool resume = false;
  std::int64_t batch_size = 8;
  std::vector<std::string> stop;
  std::optional<std::int64_t> log_probabilities;
  SavedModelOptions model;

  void declare(Options& options);
  /// Throws ConfigError if the options contradict each other.
  void check(const Options& options) const;
  /// Returns whether there are many texts, whose results go to a file.
  bool has_output() const { return !prompts.empty() || text_count.has_value(); }
};

/// Continues the prompts of a file, or texts from nothing, and writes the results in their order. A prompt's line can
/// override `max_new_tokens`. Throws DataError with file and line for an unusable prompt, before generating anything,
/// and ConfigError for texts from nothing if the tokenizer has no end of document, with which they begin. Collective.
void continue_prompts(Job& job, SavedModel& saved, const data::Tokenizer& tokenizer, const GenerateOptions& batch);

}  // namespace trireme::app
