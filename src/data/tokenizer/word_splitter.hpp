#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/word_cache.hpp"

namespace trireme::data {

/// Hand-written splitter equivalent to these patterns, in linear time:
///
///   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
///           |\s+(?!\S)|\s+
///   qwen2   the pattern of llama3 with \p{N} instead of \p{N}{1,3}
///   tekken  [^\r\n\p{L}\p{N}]?U*L+|[^\r\n\p{L}\p{N}]?U+L*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
///           with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]: words of Mistral end where a
///           capital follows a small letter.
///   o200k   the pattern of tekken with \p{N}{1,3}, and (?i:'s|'t|'re|'ve|'m|'ll|'d)? after each of its first two parts
///
/// Letters (L*) and numbers (N*) go by Unicode's general category, \s by its property White_Space. A byte that is not
/// part of a UTF-8 character counts as one character of none of these classes, like U+FFFD.
class WordSplitter {
 public:
  explicit WordSplitter(WordPattern pattern);
  WordPattern pattern() const { return pattern_; }
  /// End of the word that starts at `text`, which is before `end`. The end of a word depends on the text after it, so
  /// `end` must be the end of the entire text.
  const char* word_end(const char* text, const char* end) const;
  /// Adds the next words from `text` on, which is before `end`, the end of the entire text: at least one. Returns the
  /// end of the last one. Much faster than `word_end`, with the same words.
  const char* cut(const char* text, const char* end, WordBatch& words) const;
  /// Returns whether `text` has the same words as the texts before and after byte `at`, split separately.
  bool can_cut(std::string_view text, std::size_t at) const;

 private:
  enum class Class : std::uint8_t { other, letter, number, space };
  struct Character {
    Class character_class;
    int size_bytes;
  };
  /// Bits of 64 bytes of text, each of which has the class of its character.
  struct BlockClasses {
    std::uint64_t letters = 0, numbers = 0, spaces = 0;
    std::uint64_t inside = 0;  // bytes that continue a character
  };
  Character character(const char* text, const char* end) const;
  void add_characters(const char* text, const char* end, std::uint64_t bytes, BlockClasses& classes) const;
  std::uint64_t add_letters(const char* text, std::uint64_t others, BlockClasses& classes) const;
  BlockClasses with_others(const char* text, const char* end, std::uint64_t others, BlockClasses classes) const;
  std::uint64_t gpt2_cuts(const char* text, const char* end) const;
  const char* class_end(const char* text, const char* end, Class wanted) const;
  const char* space_end(const char* text, const char* end) const;
  const char* gpt2_word_end(const char* text, const char* end) const;
  const char* llama_word_end(const char* text, const char* end) const;
  const char* tekken_word_end(const char* text, const char* end) const;
  const char* numbers_end(const char* text, const char* end) const;
  const char* contraction_end(const char* text, const char* end) const;
  bool has_cases() const { return pattern_ == WordPattern::tekken || pattern_ == WordPattern::o200k; }
  const char* signs_end(const char* text, const char* end, Character first) const;
  int cases_of(const char* text, const char* end, int& size_bytes) const;

  WordPattern pattern_;
  std::array<Class, 128> ascii_;
  std::vector<Class> classes_;                               // class of every code point
  std::vector<std::uint8_t> kinds_of_two_, kinds_of_three_;  // by code point, for GPT-2's words
  std::vector<std::uint8_t> cases_;  // bits of Tekken's classes: 1 if it is in U, plus 2 if in L
};

}  // namespace trireme::data
