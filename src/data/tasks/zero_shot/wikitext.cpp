#include "src/data/tasks/zero_shot/wikitext.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

struct Replacement {
  std::string_view from, to;
};

std::string replaced_by(std::string text, std::initializer_list<Replacement> rules) {
  for (const Replacement& rule : rules) text = replaced(text, rule.from, rule.to);
  return text;
}

/// Replaces "/' D/", D an ASCII digit, by "/'[0-9]/": the original inserts the pattern as text.
std::string with_digits_lost(std::string_view text) {
  constexpr std::string_view front = "/' ";
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const std::size_t at = text.find(front);
    if (at == std::string_view::npos) return result.append(text);
    const std::string_view rest = text.substr(at + front.size());
    const bool matches = rest.size() >= 2 && rest[0] >= '0' && rest[0] <= '9' && rest[1] == '/';
    result.append(text.substr(0, at)).append(matches ? "/'[0-9]/" : "/");
    text.remove_prefix(matches ? at + front.size() + 2 : at + 1);
  }
}

/// Removes the white space inside each pair of brackets or quotes. A pair ends with the first `close` after `open`.
std::string tightened(std::string_view text, char open, char close) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const std::size_t begin = text.find(open);
    const std::size_t end = begin == std::string_view::npos ? begin : text.find(close, begin + 1);
    if (end == std::string_view::npos) return result.append(text);
    result.append(text.substr(0, begin + 1)).append(stripped(text.substr(begin + 1, end - begin - 1))) += close;
    text.remove_prefix(end + 1);
  }
}

std::string without_wikitext_spaces(std::string text) {
  text = with_digits_lost(replaced_by(std::move(text), {{"s '", "s'"}}));
  text = replaced_by(std::move(text), {{" @-@ ", "-"},
                                       {" @,@ ", ","},
                                       {" @.@ ", "."},
                                       {" : ", ": "},
                                       {" ; ", "; "},
                                       {" . ", ". "},
                                       {" ! ", "! "},
                                       {" ? ", "? "},
                                       {" , ", ", "}});
  constexpr std::pair<char, char> pairs[] = {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}};
  for (const auto& [open, close] : pairs) text = tightened(text, open, close);
  return replaced_by(std::move(text), {{"= = = =", "===="},
                                       {"= = =", "==="},
                                       {"= =", "=="},
                                       {" \xC2\xB0 ", "\xC2\xB0"},  // the sign of degrees
                                       {" \n", "\n"},
                                       {"\n ", "\n"},
                                       {" N ", " 1 "},
                                       {" 's", "'s"}});
}

}  // namespace

Detokenizer detokenizer_of(std::string_view path) {
  constexpr std::pair<std::string_view, Detokenizer> rules[] = {
      {"ptb", Detokenizer::ptb}, {"wiki", Detokenizer::wikitext}, {"lambada", Detokenizer::lambada}};
  for (const auto& [part, rule] : rules) {
    if (path.find(part) != std::string_view::npos) return rule;
  }
  return Detokenizer::none;
}

const char* name_of(Detokenizer detokenizer) {
  constexpr const char* names[] = {"none", "ptb", "wikitext", "lambada"};
  return names[static_cast<int>(detokenizer)];
}

std::string detokenized(std::string text, Detokenizer detokenizer) {
  if (detokenizer == Detokenizer::wikitext) return without_wikitext_spaces(std::move(text));
  if (detokenizer != Detokenizer::ptb) return text;
  return replaced_by(
      std::move(text),
      {{" '", "'"}, {" \n", "\n"}, {"\n ", "\n"}, {" n't", "n't"}, {" N ", "1 "}, {"$ 1", "$1"}, {"# 1", "#1"}});
}

ScoredTexts overlapping_windows(std::span<const std::int32_t> ids, std::int64_t sequence_length, std::int64_t overlap,
                                std::int32_t padding) {
  TRIREME_CHECK(overlap <= sequence_length, ConfigError,
                "<overlapping_eval> {} exceeds the windows of <seq_length> {}: tokens between them would not be "
                "scored. Try at most {}",
                overlap, sequence_length, sequence_length);
  TRIREME_CHECK(!ids.empty(), DataError, "no windows: the text has no tokens");
  const std::int64_t stride = std::max<std::int64_t>(overlap, 1);
  const std::int64_t targets = std::ssize(ids) - 1;
  const std::int64_t windows = (std::max<std::int64_t>(targets - stride, 0) + stride - 1) / stride + 1;
  ScoredTexts result(padding);
  result.append_ids(ids);
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::int64_t own = std::min(sequence_length, targets - i * stride);
    const std::int64_t scored_before = i == 0 ? 0 : sequence_length - stride;
    result.add(i * stride, own + 1, std::max<std::int64_t>(own - scored_before, 0));
  }
  return result;
}

WikiText make_wikitext(std::string_view text, Detokenizer detokenizer, const Tokenizer& tokenizer,
                       std::int64_t sequence_length, std::int64_t overlap) {
  const std::vector<std::int32_t> ids = tokenizer.encode_prompt(detokenized(std::string(text), detokenizer));
  TRIREME_CHECK(ids.size() >= 2, DataError, "the text has {} tokens: perplexity needs at least 2", ids.size());
  return {.windows = overlapping_windows(ids, sequence_length, overlap, tokenizer.end_of_document()),
          .original_tokens = std::ranges::count(stripped(text), ' ') + 1,
          .tokenized_tokens = std::ssize(ids) - std::ssize(tokenizer.special().prefix)};
}

WikiTextResult result_of(const WikiText& set, std::span<const TextScore> scores) {
  constexpr double max_exponent = 20;
  const TextScore sum = total(scores);
  WikiTextResult result{};
  result.loss = Mean::of(sum.loss, sum.squared_loss, set.windows.scored());
  result.perplexity = std::exp(std::min(result.loss.value, max_exponent));
  result.adjusted_perplexity =
      set.original_tokens == 1
          ? std::numeric_limits<double>::infinity()
          : std::exp(std::min(sum.loss / static_cast<double>(set.original_tokens - 1), max_exponent));
  return result;
}

}  // namespace trireme::data
