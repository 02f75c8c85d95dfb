#include "src/data/tokenizer/split_words.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/byte_spelling.hpp"

namespace trireme::data {
namespace {

using Behavior = SplitStep::Behavior;
using Range = SplitWords::Range;

constexpr std::array<std::string_view, word_pattern_count> pattern_regexes{
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

constexpr std::string_view one_digit = R"(\p{N})", any_digits = R"(\p{N}+)", three_ascii_digits = "[0-9][0-9][0-9]";
constexpr std::string_view up_to_three_digits = R"(\p{N}{1,3})", chinese_and_japanese = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view deepseek_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen35_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view bloom_words = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

/// Expressions of which no match contains, and none looks at, both a letter or number and white space after it.
struct CutRule {
  std::string_view regex;
  bool separates;  ///< the white space, or what is before it, is always in a match: a word ends between them
};
constexpr std::array cut_rules{
    CutRule{one_digit, false},          CutRule{any_digits, false},  CutRule{three_ascii_digits, false},
    CutRule{up_to_three_digits, false}, CutRule{punctuation, false}, CutRule{chinese_and_japanese, false},
    CutRule{deepseek_words, true},      CutRule{qwen35_words, true}, CutRule{bloom_words, true},
};

SplitStep step_by(std::string_view regex, bool in_spelling = false) {
  return {.regex = std::string(regex), .in_spelling = in_spelling};
}

/// Returns an expression with the ends of lines escaped, as the tables above spell them.
std::string with_escapes(std::string_view regex) { return replaced(replaced(regex, "\r", R"(\r)"), "\n", R"(\n)"); }

bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_chinese_or_japanese(char32_t c) { return (c >= U'一' && c <= U'龥') || (c >= 0x3040 && c <= 0x30FF); }

struct Run {
  std::string_view regex;
  RunFinder finder;
};
constexpr std::array runs{Run{one_digit, {is_number, 1}}, Run{up_to_three_digits, {is_number, 3}},
                          Run{any_digits, {is_number, SIZE_MAX}},
                          Run{chinese_and_japanese, {is_chinese_or_japanese, SIZE_MAX}}};

bool is_letter_or_number(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) || is_number(c);
}

/// Turns ranges of `spelling_of(bytes)`, a character for each byte, into those of `bytes`.
void to_byte_ranges(std::string_view spelling, std::vector<Range>& ranges) {
  std::size_t at = 0, byte = 0;
  const auto advance = [&](std::size_t end) {
    byte += static_cast<std::size_t>(count_characters(spelling.substr(at, end - at)));
    at = end;
    return byte;
  };
  for (Range& range : ranges) range = {advance(range.begin), advance(range.end)};
}

template <class Finder>
std::vector<Range> matches(const Finder& finder, std::string_view text, bool in_spelling) {
  if (!in_spelling) return finder.matches(text);
  const std::string spelling = spelling_of(text);
  std::vector<Range> found = finder.matches(spelling);
  to_byte_ranges(spelling, found);
  return found;
}

std::vector<Range> matches(const WordSplitter& splitter, std::string_view text, bool /*in_spelling*/) {
  std::vector<Range> found;
  const char* const end = text.data() + text.size();
  for (const char* word = text.data(); word != end;) {
    const char* const next = splitter.word_end(word, end);
    found.push_back({static_cast<std::size_t>(word - text.data()), static_cast<std::size_t>(next - text.data())});
    word = next;
  }
  return found;
}

/// A match, or the text before or after one.
struct Part {
  Range range;
  bool is_match;
};

std::vector<Part> parts_of(const std::vector<Range>& found, std::size_t size, bool invert) {
  std::vector<Part> parts;
  std::size_t at = 0;
  for (const Range& match : found) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < size) parts.push_back({{at, size}, invert});
  return parts;
}

/// Joins parts as tokenizers does: a match that follows no other one joins the part before it.
std::vector<Part> merged(const std::vector<Part>& parts, Behavior behavior) {
  std::vector<Part> result;
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins = behavior == Behavior::contiguous ? part.is_match == previous : part.is_match && !previous;
    previous = part.is_match;
    if (joins && !result.empty()) {
      Range& last = result.back().range;
      last = {std::min(last.begin, part.range.begin), std::max(last.end, part.range.end)};
    } else {
      result.push_back(part);
    }
  }
  return result;
}

}  // namespace

const std::vector<NamedSplits>& named_splits() {
  static const std::vector<NamedSplits> splits = [] {
    const auto of = [](WordPattern pattern) { return std::vector{step_by(regex_of(pattern))}; };
    const SplitStep gpt2 = of(WordPattern::gpt2)[0];
    return std::vector<NamedSplits>{
        {"gpt2", {gpt2}},
        {"cl100k", of(WordPattern::llama3)},
        {"llama3", of(WordPattern::llama3)},
        {"qwen2", of(WordPattern::qwen2)},
        {"qwen3", of(WordPattern::qwen2)},
        {"qwen3.5", {step_by(qwen35_words)}},
        {"tekken", of(WordPattern::tekken)},
        {"o200k", of(WordPattern::o200k)},
        {"deepseek", {step_by(up_to_three_digits), step_by(chinese_and_japanese), step_by(deepseek_words)}},
        {"starcoder", {step_by(one_digit), gpt2}},
        {"bloom", {step_by(bloom_words)}},
        {"falcon",
         {{.regex = std::string(punctuation), .behavior = Behavior::contiguous},
          gpt2,
          step_by(any_digits, true),
          step_by(three_ascii_digits, true)}},
    };
  }();
  return splits;
}

void set_words(BpeVocabulary& vocabulary, std::vector<SplitStep> splits) {
  const std::optional<WordPattern> pattern = splits.size() == 1 ? pattern_of(splits[0]) : std::nullopt;
  vocabulary.pattern = pattern.value_or(WordPattern::gpt2);
  vocabulary.splits = pattern ? std::vector<SplitStep>() : std::move(splits);
}

std::string_view regex_of(WordPattern pattern) { return pattern_regexes[static_cast<std::size_t>(pattern)]; }

std::optional<WordPattern> pattern_of(const SplitStep& step) {
  const auto known = std::ranges::find(pattern_regexes, with_escapes(step.regex));
  const bool is_plain = step.behavior == Behavior::isolated && !step.invert && !step.in_spelling;
  if (known == pattern_regexes.end() || !is_plain) return std::nullopt;
  return static_cast<WordPattern>(known - pattern_regexes.begin());
}

std::vector<Range> RunFinder::matches(std::string_view text) const {
  std::vector<Range> found;
  std::size_t count = 0;  // characters of the last match, if it ends here
  std::size_t at = 0;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    if (c.size_bytes == 0 || !contains(c.code_point)) {
      count = 0;
    } else if (count > 0 && count < most) {
      found.back().end += bytes.size();
      ++count;
    } else {
      found.push_back({at, at + bytes.size()});
      count = 1;
    }
    at += bytes.size();
  });
  return found;
}

SplitWords::SplitWords(std::vector<SplitStep> steps) {
  for (SplitStep& step : steps) steps_.push_back(step_of(std::move(step)));
}

SplitWords::Step SplitWords::step_of(SplitStep definition) {
  if (const auto pattern = pattern_of(definition)) return {std::move(definition), WordSplitter(*pattern)};
  const auto run = std::ranges::find(runs, definition.regex, &Run::regex);
  if (run != runs.end()) return {std::move(definition), run->finder};
  Regex regex(definition.regex);
  return {std::move(definition), std::move(regex)};
}

std::vector<Range> SplitWords::words(std::string_view text) const {
  std::vector<Range> words;
  if (!text.empty()) words.push_back({0, text.size()});
  for (const Step& step : steps_) {
    std::vector<Range> cut;
    for (const Range& word : words) split(step, text.substr(word.begin, word.end - word.begin), word.begin, cut);
    words = std::move(cut);
  }
  return words;
}

/// Appends the words of a part of a text, which begins at `offset` in it.
void SplitWords::split(const Step& step, std::string_view text, std::size_t offset, std::vector<Range>& words) {
  const auto& [regex, behavior, invert, in_spelling] = step.definition;
  const std::vector<Range> found =
      std::visit([&](const auto& expression) { return matches(expression, text, in_spelling); }, step.expression);
  std::vector<Part> parts = parts_of(found, text.size(), invert);
  if (behavior == Behavior::removed) std::erase_if(parts, [](const Part& part) { return part.is_match; });
  if (behavior == Behavior::merged_with_next) std::ranges::reverse(parts);
  if (behavior >= Behavior::merged_with_previous) parts = merged(parts, behavior);
  if (behavior == Behavior::merged_with_next) std::ranges::reverse(parts);
  for (const auto& [range, is_match] : parts) {
    if (range.begin < range.end) words.push_back({range.begin + offset, range.end + offset});
  }
}

bool SplitWords::can_cut(std::string_view text, std::size_t at) const {
  if (!is_word_cut(text, at)) return false;
  const Utf8Character last = decode_utf8(text.data() + character_begin(text, at - 1), text.data() + at);
  if (last.size_bytes == 0 || !is_letter_or_number(last.code_point)) return false;
  bool is_separate = false;
  for (const auto& [definition, expression] : steps_) {
    const auto rule = std::ranges::find(cut_rules, with_escapes(definition.regex), &CutRule::regex);
    const bool joins = definition.behavior != Behavior::isolated && definition.behavior != Behavior::contiguous;
    const bool is_known = std::holds_alternative<WordSplitter>(expression);
    if (!is_known && (rule == cut_rules.end() || joins || definition.invert)) return false;
    if (definition.in_spelling && (is_known || rule->separates)) return false;
    // Contiguous parts that do not match stay together: so may the two sides of the cut.
    is_separate = is_separate || is_known || (rule->separates && definition.behavior == Behavior::isolated);
  }
  return is_separate;
}

}  // namespace trireme::data
