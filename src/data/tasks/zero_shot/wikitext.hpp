#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Rule that undoes the spaces which a data set's authors put around punctuation.
enum class Detokenizer { none, ptb, wikitext, lambada };

/// Returns the rule that Megatron-LM applies to the file at `path`: the first of "ptb", "wiki" and "lambada" that
/// `path` contains selects it. None of them: Detokenizer::none.
Detokenizer detokenizer_of(std::string_view path);

/// Returns the name of a rule as options spell it.
const char* name_of(Detokenizer detokenizer);

/// Returns `text`, which is UTF-8, by a rule of Megatron-LM 23.06, exactly: with white space as in Python's re, and
/// with brackets and quotes paired over the entire text, also across lines. LAMBADA's rule changes nothing.
std::string detokenized(std::string text, Detokenizer detokenizer);

/// Cuts a stream of tokens into windows of `sequence_length` targets that begin `overlap` apart. The first window
/// scores all of its targets, each later one its last `overlap`: every token except the first is scored exactly once.
/// There are max(ceil(max(tokens - 1 - overlap, 0) / overlap) + 1, 1) windows, as in Megatron-LM, of which the last may
/// score nothing. An overlap of 0 means 1. ConfigError if it exceeds `sequence_length`, DataError without tokens.
ScoredTexts overlapping_windows(std::span<const std::int32_t> ids, std::int64_t sequence_length, std::int64_t overlap,
                                std::int32_t padding);

/// Running text in overlapping windows, for perplexity.
struct WikiText {
  ScoredTexts windows;
  std::int64_t original_tokens;   ///< single spaces, plus one, of the text without white space at its ends
  std::int64_t tokenized_tokens;  ///< ids of the detokenized text
};

/// Makes the windows of `text`, which is UTF-8. DataError if it has fewer than two tokens.
WikiText make_wikitext(std::string_view text, Detokenizer detokenizer, const Tokenizer& tokenizer,
                       std::int64_t sequence_length, std::int64_t overlap);

/// Perplexities of a running text. `loss` is the mean over all tokens except the first; its standard error assumes
/// independence. perplexity = exp(min(20, loss)). The adjusted one refers the same loss to the words of the original
/// text: exp(min(20, loss (tokenized - 1) / (original - 1))), infinity for one word. The paper reports it (arXiv
/// 1909.08053, section 5.3).
struct WikiTextResult {
  Mean loss;
  double perplexity;
  double adjusted_perplexity;
};
WikiTextResult result_of(const WikiText& set, std::span<const TextScore> scores);

}  // namespace trireme::data
