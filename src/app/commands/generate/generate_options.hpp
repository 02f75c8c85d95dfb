#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/infer/generation.hpp"

namespace trireme::app {

/// Source of the texts that `trireme generate` continues.
enum class TextSource {
  prompt,        ///< one prompt, given or on standard input
  prompts,       ///< lines of JSON, in a file or on standard input
  chat,          ///< conversations in JSON, in a file or on standard input
  nothing,       ///< the beginning of a document
  interactive,   ///< prompts that a user types
  conversation,  ///< messages that a user types
};

/// Options of `trireme generate`.
struct GenerateOptions {
  std::string prompt;
  std::int64_t max_new_tokens = 100;
  infer::SamplingOptions sampling;
  std::string prompts;                      ///< file of prompts
  std::string chat, chat_template;          ///< file of conversations; name or file of a template
  std::string system;                       ///< first message of typed conversations; empty: none
  std::optional<std::int64_t> num_samples;  ///< continuations of each prompt
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool follow = false;
  // Options of results in JSON.
  std::string output;
  bool resume = false;
  std::int64_t batch_size = 8;
  std::optional<std::int64_t> log_probabilities;
  SavedModelOptions model;

  void declare(Options& options);
  /// Settles the source. Throws ConfigError if the options contradict each other.
  void settle(const Options& options);

  TextSource source() const { return source_; }
  std::int64_t samples() const { return num_samples.value_or(1); }
  /// Returns whether results are lines of JSON; otherwise they are texts.
  bool writes_json() const { return !output.empty(); }
  /// Returns whether results go to standard output.
  bool writes_to_stdout() const { return output.empty() || output == "-"; }
  /// File of the texts to continue; "-": standard input.
  const std::string& file() const { return source_ == TextSource::chat ? chat : prompts; }
  /// Returns whether a user types the texts.
  bool is_typed() const { return source_ == TextSource::interactive || source_ == TextSource::conversation; }
  bool reads_stdin() const { return is_typed() || prompt == "-" || file() == "-"; }

 private:
  bool interactive_ = false;
  TextSource source_ = TextSource::prompt;
};

}  // namespace trireme::app
