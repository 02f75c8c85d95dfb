#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/app/commands/generate/generate_options.hpp"
#include "src/app/job/chat_templates.hpp"
#include "src/app/job/prompt_tokens.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {

/// Reads the prompts of `trireme generate` one by one: those of a file in memory that does not grow with it. Each comes
/// GenerateOptions::samples times, with numbers of its own.
class PromptReader {
 public:
  /// `text` is standard input, if the options name it, or the file of conversations. All arguments must live longer.
  /// Throws DataError for a prompt that the model cannot continue, here and below.
  PromptReader(const GenerateOptions& options, std::string_view text, const data::Tokenizer& tokenizer,
               const model::ModelConfig& model);

  /// Moves on to the next prompt; returns false after the last.
  bool next();
  const infer::Prompt& prompt() const { return prompt_; }
  /// Number of the current prompt, from 0, and of its sample.
  std::int64_t number() const { return prompt_.number; }
  std::int64_t sample() const { return prompt_.number % options_.samples(); }

 private:
  /// Reads the next line into prompt_. Returns false at the end.
  bool read_line();
  void parse_line(std::string_view bytes, std::int64_t position);
  void take_chat(std::string_view text, const std::string& where, const std::string& id);

  const GenerateOptions& options_;
  std::string_view text_;  // rest of standard input or of the conversations
  const data::Tokenizer& tokenizer_;
  const model::ModelConfig& model_;
  std::string name_;                           // name of the source, for messages
  std::optional<prepare::TextReader> reader_;  // reader of a file, if any
  std::optional<ChatTemplates> chats_;         // template of conversations, if they are read
  prepare::TextPiece piece_;
  std::int64_t lines_ = 0;
  infer::Prompt prompt_;
};

/// Results written by an earlier run.
struct EarlierResults {
  std::vector<std::string> ids;  ///< as JSON, in order
  std::int64_t bytes = 0;        ///< size of its complete lines
};

/// Reads the complete lines of a file of results. The last line of a killed run may be incomplete.
EarlierResults read_results(const std::string& path);

/// Checks every prompt of `reader`. Returns their number and the maximum length of one with its continuation; `read`
/// stays empty. The prompts must start with those of the earlier results.
infer::PromptSource check_prompts(PromptReader reader, const GenerateOptions& options, const model::ModelConfig& model,
                                  const EarlierResults& earlier);

/// Returns all of standard input, which rank 0 reads, on every rank. Collective.
std::string read_standard_input(Communicator& world);

}  // namespace trireme::app
