#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/metrics/append_file.hpp"
#include "src/app/commands/generate/continuation_text.hpp"
#include "src/app/commands/generate/prompt_reader.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"

namespace trireme::app {

/// Continues the prompts of `trireme generate` with a model, and again with each newer one.
class PromptSession {
 public:
  /// The arguments must live longer. Reads standard input if the options name it, and conversations. Collective.
  PromptSession(Job& job, const GenerateOptions& options);

  /// Continues all prompts and writes the results. A file of results is created once all prompts are valid. Collective.
  void run(SavedModel& saved);

 private:
  /// Opens and locks the file of results on rank 0, and returns what it holds. Collective.
  EarlierResults open_output();
  /// Continues one prompt and writes its text as it grows.
  void stream(SavedModel& saved, const infer::Prompt& prompt, const infer::GenerationOptions& options,
              const ContinuationText& texts);
  /// Continues the prompts from `source.read` on, a record each.
  void run_all(SavedModel& saved, const infer::PromptSource& source, std::int64_t first,
               const infer::GenerationOptions& options, const infer::RecordSink& sink);

  Job& job_;
  const GenerateOptions& options_;
  std::string input_;                     // standard input, or the file of conversations
  bool has_output_ = false;               // some step's continuations were written
  std::optional<io::AppendFile> output_;  // on rank 0
};

/// Returns the options of a generation with the settings of the command. `texts` must live longer.
infer::GenerationOptions generation_options(const GenerateOptions& options, const data::Tokenizer& tokenizer,
                                            const ContinuationText& texts);

/// Writes text to standard output at once. On a terminal control characters are escaped. Throws IoError if it fails.
void print_text(std::string_view text);

/// Prints the text of a continuation as it grows, on rank 0.
class TextPrinter {
 public:
  /// `texts` must live longer.
  TextPrinter(bool prints, const ContinuationText& texts) : prints_(prints), texts_(texts) {}
  /// Prints what no further token changes.
  void observe(const infer::Continuation& continuation);
  /// Prints the rest. Returns the text, on every rank.
  std::string finish(infer::Continuation continuation);

 private:
  bool prints_;
  const ContinuationText& texts_;
  std::size_t printed_bytes_ = 0;
};

}  // namespace trireme::app
