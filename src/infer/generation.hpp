#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/infer/token_sampling.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

/// A text to continue.
struct Prompt {
  std::int64_t number = 0;  ///< its random numbers depend on the seed, this and the position in the text alone
  std::string id;           ///< the caller's name for it
  std::vector<std::int32_t> tokens;
  std::int64_t max_new_tokens = 0;
};

enum class FinishReason { length, stop, end_of_document };

/// New tokens of a text.
struct Continuation {
  /// Without the token that ends a document.
  std::vector<std::int32_t> tokens;
  /// `length`: as many as the prompt's max_new_tokens; `stop`: GenerationOptions::stops; else the end of the document.
  FinishReason reason = FinishReason::length;
  /// For each token `infer::log_probabilities`: its own, then those of the likeliest. Empty unless asked for.
  std::vector<std::vector<TokenProbability>> log_probabilities;
};

struct GenerationOptions {
  SamplingOptions sampling;
  std::int32_t end_of_document = -1;  ///< token that ends a text, -1: none
  std::int64_t batch_size = 1;        ///< texts that one replica of the model continues at a time
  /// If given, log-probabilities are returned: of each chosen token, and of this many of the likeliest.
  std::optional<std::int64_t> log_probabilities;
  /// Returns whether a text ends with these new tokens. Each rank of a replica calls it. Empty: none does.
  std::function<bool(std::span<const std::int32_t>)> stops;
};

/// Continues `prompt` token by token, up to `max_new_tokens` or until `end_of_document` (-1: none) is chosen, which is
/// not part of the result. Keys and values of earlier positions are cached, so each token costs one position's work.
/// If the text exceeds the model's positions, the context starts again with its latest half. Collective over the
/// grid: every rank gets the same tokens, and data ranks do the same work. NumericalError if the model's output is
/// not finite.
std::vector<std::int32_t> generate(train::ParallelModel& model, Communicator& world,
                                   const std::vector<std::int32_t>& prompt, std::int64_t max_new_tokens,
                                   std::int32_t end_of_document, const SamplingOptions& sampling);

/// The prompts of `generate_all`.
struct PromptSource {
  std::int64_t count = 0;
  /// The most tokens that a prompt and its continuation have together; more than the model's positions count as these.
  std::int64_t positions = 0;
  /// Returns prompt i; each rank calls it for the prompts of its replica, i ascending.
  std::function<Prompt(std::int64_t)> read;
};

/// The results of `generate_all`, as records of any form.
struct RecordSink {
  /// Makes the record of a continuation, on one rank of the replica that made it.
  std::function<std::string(const Prompt&, const Continuation&)> record;
  /// Takes the records of all prompts in their order, on rank 0 of the world.
  std::function<void(const std::string&)> take;
};

/// Sums over the prompts, and this rank's time.
struct GenerationCounts {
  std::int64_t prompt_tokens = 0;
  std::int64_t new_tokens = 0;
  double prompts_s = 0;  ///< time of the prompts' positions, each with the choice of the first new token
};

/// Continues the prompts from number `first` on, each as `generate` does alone, `batch_size` at a time on each data
/// rank. A text that ends makes room for the next prompt at once. Neither the grid nor the batch changes a result,
/// except for the rounding of products. Prompt i goes to data rank (i - first) mod D. On one data rank, records are
/// taken as soon as all earlier ones are complete; on several, rank 0 gathers them after every 16 batches. Collective
/// over the grid. NumericalError if the model's output is not finite, EnvironmentError if the cache does not fit into
/// memory.
GenerationCounts generate_all(train::ParallelModel& model, Communicator& world, const PromptSource& prompts,
                              std::int64_t first, const GenerationOptions& options, const RecordSink& sink);

}  // namespace trireme::infer
