#pragma once

#include <span>
#include <string_view>

#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Part of a text predicted in LAMBADA.
enum class LambadaTarget {
  last_token,  ///< the last token of the entire text, including trailing white space
  last_word    ///< the tokens of " " and the last word, after the stripped text before it
};

/// Adds one example: its target's tokens are scored (Megatron-LM 23.06). The first token of an example is never
/// predicted: an example of one token scores nothing. DataError if the text has no token, or no word.
void add_lambada(std::string_view text, LambadaTarget target, const Tokenizer& tokenizer, const LengthLimit& limit,
                 ScoredTexts& examples);

/// Examples of which every scored token is the most likely one. Those that score nothing count as correct.
struct LambadaResult {
  std::int64_t correct = 0;
  std::int64_t unscored = 0;  ///< examples that score nothing
  Mean accuracy;
  Mean loss;  ///< mean over the scored tokens
};
LambadaResult result_of(const ScoredTexts& examples, std::span<const TextScore> scores);

}  // namespace trireme::data
