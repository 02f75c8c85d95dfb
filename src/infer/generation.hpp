#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/infer/token_sampling.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

/// Text to continue.
struct Prompt {
  std::int64_t number = 0;  ///< random numbers depend only on the seed, this and the position in the text
  std::string id;           ///< name given by the caller
  std::vector<std::int32_t> tokens;
  std::int64_t max_new_tokens = 0;
};

enum class FinishReason { length, stop, end_of_document, interrupted };

/// New tokens of a text.
struct Continuation {
  /// Excludes the token that ends the text.
  std::vector<std::int32_t> tokens;
  /// `length`: the prompt's max_new_tokens were generated; `stop`: GenerationOptions::stops holds.
  FinishReason reason = FinishReason::length;
  /// For each token `infer::log_probabilities`: its own, then those of the likeliest. Empty unless requested.
  std::vector<std::vector<TokenProbability>> log_probabilities;
};

struct GenerationOptions {
  SamplingOptions sampling;
  std::vector<std::int32_t> end_tokens;  ///< tokens that end a text
  std::int64_t batch_size = 1;           ///< texts that one replica of the model continues at a time
  /// If given, returns log-probabilities: of each chosen token, and of this many of the likeliest.
  std::optional<std::int64_t> log_probabilities;
  /// Returns whether a text ends after these new tokens. Called on each rank of a replica. Empty: never.
  std::function<bool(std::span<const std::int32_t>)> stops;
  /// Called on each rank of a replica after each new token of a text; may be empty.
  std::function<void(const Prompt&, const Continuation&)> observe;
  /// Returns whether this rank was asked to end all texts, FinishReason::interrupted; one rank of a replica suffices.
  /// Empty: never. Called after each token, with a message.
  std::function<bool()> interrupted;
};

/// Returns how many texts of `positions` tokens, at most `most`, have room for their keys and values in the free memory
/// of every rank. Collective.
std::int64_t texts_that_fit(train::ParallelModel& model, Communicator& world, std::int64_t positions,
                            std::int64_t most);
/// Returns the number of tokens of the longest text: of a prompt and its continuation, at most the model's positions.
std::int64_t longest_text(const train::ParallelModel& model, const std::vector<Prompt>& prompts);

/// Continues prompts token by token, up to `max_new_tokens` or until a token of `end_tokens` is chosen, which is not
/// part of the result. Keys and values are cached, so each token costs the work of one position. If a text exceeds the
/// model's positions, its context restarts with its latest half. Collective over the grid: all data ranks continue all
/// prompts together, and every rank returns the same. NumericalError if the model's output is not finite.
std::vector<Continuation> generate(train::ParallelModel& model, Communicator& world, const std::vector<Prompt>& prompts,
                                   const GenerationOptions& options);

class Generator;

/// Continues texts one after another, each as `generate` does: the turns of a conversation. Keys and values of the
/// tokens that a prompt and the text before both begin with are computed once. Collective over the grid.
class TextContinuer {
 public:
  /// The arguments must live longer; each run reads the options, whose batch size is 1.
  TextContinuer(train::ParallelModel& model, Communicator& world, const GenerationOptions& options);
  ~TextContinuer();
  TextContinuer& operator=(TextContinuer&&) = delete;

  /// Continues a prompt of at least one token. EnvironmentError if the cache does not fit into memory.
  Continuation run(const Prompt& prompt);

 private:
  train::ParallelModel& model_;
  Communicator& world_;
  const GenerationOptions& options_;
  std::unique_ptr<Generator> generator_;
  std::int64_t positions_ = 0;  // those of the generator's cache
};

/// Prompts of `generate_all`.
struct PromptSource {
  std::int64_t count = 0;
  /// Largest number of tokens of a prompt and its continuation together, capped at the model's positions.
  std::int64_t positions = 0;
  /// Returns prompt i; each rank calls it for the prompts of its replica, i ascending.
  std::function<Prompt(std::int64_t)> read;
};

/// Receiver of the results of `generate_all`, as records of any form.
struct RecordSink {
  /// Makes the record of a continuation, on one rank of the replica that made it.
  std::function<std::string(const Prompt&, const Continuation&)> record;
  /// Takes the records of all prompts in order, on rank 0 of the world.
  std::function<void(const std::string&)> take;
};

/// Sums over the prompts, and this rank's time.
struct GenerationCounts {
  std::int64_t prompt_tokens = 0;
  std::int64_t new_tokens = 0;
  double prompts_s = 0;  ///< time for the prompts' positions, including the choice of the first new tokens
};

/// Continues the prompts from number `first` on, each as `generate` does alone, `batch_size` at a time on each data
/// rank. A text that ends is replaced by the next prompt at once. Results do not depend on grid or batch, except for
/// the rounding of GEMMs. Prompt i goes to data rank (i - first) mod D. On one data rank, records are taken as soon as
/// all earlier ones are complete; on several, rank 0 gathers them after every 16 batches. Collective over the grid.
/// If ranks of several replicas hold a layer's experts, all data ranks continue all prompts together instead.
/// NumericalError if the model's output is not finite, EnvironmentError if the cache does not fit into memory.
GenerationCounts generate_all(train::ParallelModel& model, Communicator& world, const PromptSource& prompts,
                              std::int64_t first, const GenerationOptions& options, const RecordSink& sink);

}  // namespace trireme::infer
