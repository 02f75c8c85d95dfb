#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/base/hash.hpp"
#include "src/base/utf8.hpp"
#include "src/data/quality/line_rules.hpp"
#include "src/data/quality/quality_rules.hpp"
#include "src/data/quality/separated_words.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

/// Returns whether the character alone makes no word: ASCII's signs, controls, and Unicode's punctuation.
bool is_punctuation(char32_t c) {
  if (c < 0x80) return c < ' ' || c == 0x7F || (c > ' ' && !is_alphanumeric(c));
  const utf8proc_category_t category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) || category == UTF8PROC_CATEGORY_CC;
}

template <class Is>
bool has(std::string_view word, const Is& is) {
  bool found = false;
  for_each_character(word, [&](Utf8Character c, std::string_view) { found = found || is(c.code_point); });
  return found;
}

double occurrences(std::string_view text, std::string_view sign) {
  double count = 0;
  for (std::size_t at = text.find(sign); at != text.npos; at = text.find(sign, at + sign.size())) ++count;
  return count;
}

constexpr std::string_view ellipsis = "\u2026", bullet = "\u2022";

/// Counts of the words of a text.
struct WordMeasures {
  double all = 0, without_punctuation = 0, characters = 0, alphabetic = 0, stop_words = 0;
};

WordMeasures measure_words(std::string_view text) {
  constexpr std::array<std::string_view, 8> stop_words{"the", "be", "to", "of", "and", "that", "have", "with"};
  std::vector<std::string_view> words;
  separated_words(text, words);
  WordMeasures counts;
  std::bitset<stop_words.size()> found;
  for (const std::string_view word : words) {
    if (has(word, [](char32_t c) { return !is_punctuation(c); })) {
      ++counts.without_punctuation;
      counts.characters += static_cast<double>(count_characters(word));
    }
    if (has(word, is_letter)) ++counts.alphabetic;
    const auto stop_word = std::ranges::find(stop_words, word);
    if (stop_word != stop_words.end()) found.set(static_cast<std::size_t>(stop_word - stop_words.begin()));
  }
  counts.all = static_cast<double>(words.size());
  counts.stop_words = static_cast<double>(found.count());
  return counts;
}

/// Counts of hashes: a flat table, which a filter clears nine times a document.
class HashCounts {
 public:
  /// Makes room for `hashes` different ones, with a count of 0.
  void clear(std::size_t hashes) { slots_.assign(std::bit_ceil(2 * hashes + 1), {0, 0}); }

  std::uint32_t& count(std::uint64_t hash) {
    for (std::size_t at = hash;; ++at) {
      auto& [key, count] = slots_[at & (slots_.size() - 1)];
      if (count == 0) key = hash;
      if (key == hash) return count;
    }
  }

 private:
  std::vector<std::pair<std::uint64_t, std::uint32_t>> slots_;
};

/// Hashes of the successions of 1, then 2, then more words.
class WordGrams {
 public:
  explicit WordGrams(const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
      words_.push_back(hash64(word.data(), word.size(), 0));
      lengths_.push_back(count_characters(word));
    }
    grams_ = words_;
    gram_lengths_ = lengths_;
  }

  /// Goes from successions of n words to those of n + 1.
  void lengthen() {
    ++size_;
    const std::size_t count = words_.size() >= size_ ? words_.size() - size_ + 1 : 0;
    grams_.resize(count);
    gram_lengths_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      grams_[i] = splitmix64(grams_[i], words_[i + size_ - 1]);
      gram_lengths_[i] += lengths_[i + size_ - 1];
    }
  }

  /// Characters, with a space between words, of all occurrences of the most frequent one; of several the first.
  double top_characters() {
    table_.clear(grams_.size());
    std::uint32_t most = 0;
    for (const std::uint64_t gram : grams_) most = std::max(most, ++table_.count(gram));
    for (std::size_t i = 0; i < grams_.size(); ++i) {
      if (table_.count(grams_[i]) != most) continue;
      return static_cast<double>(most) * static_cast<double>(gram_lengths_[i] + static_cast<std::int64_t>(size_) - 1);
    }
    return 0;
  }

  /// Characters of the successions that are equal to an earlier one, from left to right, without overlap.
  double repeated_characters() {
    table_.clear(grams_.size());
    std::int64_t characters = 0;
    for (std::size_t i = 0; i < grams_.size();) {
      const bool is_new = ++table_.count(grams_[i]) == 1;
      if (!is_new) characters += gram_lengths_[i];
      i += is_new ? 1 : size_;
    }
    return static_cast<double>(characters);
  }

 private:
  std::size_t size_ = 1;
  std::vector<std::uint64_t> words_, grams_;
  std::vector<std::int64_t> lengths_, gram_lengths_;
  HashCounts table_;
};

}  // namespace

std::optional<BrokenRule> gopher_quality(std::string_view text, const GopherQualityBounds& bounds) {
  const WordMeasures words = measure_words(text);
  if (words.without_punctuation < bounds.min_words)
    return BrokenRule{"gopher-quality.min-words", words.without_punctuation};
  if (words.without_punctuation > bounds.max_words)
    return BrokenRule{"gopher-quality.max-words", words.without_punctuation};
  const double length = share(words.characters, words.without_punctuation);
  if (length < bounds.min_word_length) return BrokenRule{"gopher-quality.min-word-length", length};
  if (length > bounds.max_word_length) return BrokenRule{"gopher-quality.max-word-length", length};
  const double hashes = share(occurrences(text, "#"), words.all);
  if (hashes > bounds.max_hashes) return BrokenRule{"gopher-quality.max-hashes", hashes};
  const double ellipses = share(occurrences(text, "...") + occurrences(text, ellipsis), words.all);
  if (ellipses > bounds.max_ellipses) return BrokenRule{"gopher-quality.max-ellipses", ellipses};

  double lines = 0, bullet_lines = 0, ellipsis_lines = 0;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = stripped(whole);
    ++lines;
    if (line.starts_with(bullet) || line.starts_with('-')) ++bullet_lines;
    if (line.ends_with("...") || line.ends_with(ellipsis)) ++ellipsis_lines;
  }
  if (share(bullet_lines, lines) > bounds.max_bullet_lines) {
    return BrokenRule{"gopher-quality.max-bullet-lines", share(bullet_lines, lines)};
  }
  if (share(ellipsis_lines, lines) > bounds.max_ellipsis_lines) {
    return BrokenRule{"gopher-quality.max-ellipsis-lines", share(ellipsis_lines, lines)};
  }
  const double alphabetic = share(words.alphabetic, words.all);
  if (alphabetic < bounds.min_alphabetic_words) return BrokenRule{"gopher-quality.min-alphabetic-words", alphabetic};
  if (words.stop_words < bounds.min_stop_words) return BrokenRule{"gopher-quality.min-stop-words", words.stop_words};
  return std::nullopt;
}

std::optional<BrokenRule> gopher_repetition(std::string_view text, const GopherRepetitionBounds& bounds) {
  const auto characters = static_cast<double>(count_characters(text));
  const auto check = [&](std::string_view rule, double value, double bound) {
    return value > bound ? std::optional(BrokenRule{rule, value}) : std::nullopt;
  };
  const Repetition paragraphs = repetition_of(parts_of(stripped(text), 2)), lines = repetition_of(parts_of(text, 1));
  std::optional<BrokenRule> broken;
  if ((broken = check("gopher-repetition.paragraphs", share(paragraphs.repeated, paragraphs.all),
                      bounds.repeated_paragraphs)) ||
      (broken = check("gopher-repetition.paragraph-characters", share(paragraphs.repeated_characters, characters),
                      bounds.repeated_paragraph_characters)) ||
      (broken = check("gopher-repetition.lines", share(lines.repeated, lines.all), bounds.repeated_lines)) ||
      (broken = check("gopher-repetition.line-characters", share(lines.repeated_characters, characters),
                      bounds.repeated_line_characters))) {
    return broken;
  }
  std::vector<std::string_view> words;
  separated_words(text, words);
  WordGrams grams(words);
  for (const auto& [rule, bound] : {std::pair("gopher-repetition.top-2-grams", bounds.top_2_grams),
                                    {"gopher-repetition.top-3-grams", bounds.top_3_grams},
                                    {"gopher-repetition.top-4-grams", bounds.top_4_grams}}) {
    grams.lengthen();
    if ((broken = check(rule, share(grams.top_characters(), characters), bound))) return broken;
  }
  for (const auto& [rule, bound] : {std::pair("gopher-repetition.5-grams", bounds.repeated_5_grams),
                                    {"gopher-repetition.6-grams", bounds.repeated_6_grams},
                                    {"gopher-repetition.7-grams", bounds.repeated_7_grams},
                                    {"gopher-repetition.8-grams", bounds.repeated_8_grams},
                                    {"gopher-repetition.9-grams", bounds.repeated_9_grams},
                                    {"gopher-repetition.10-grams", bounds.repeated_10_grams}}) {
    grams.lengthen();
    if ((broken = check(rule, share(grams.repeated_characters(), characters), bound))) return broken;
  }
  return std::nullopt;
}

}  // namespace trireme::data
