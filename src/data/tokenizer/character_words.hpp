#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/base/utf8.hpp"
#include "src/data/tokenizer/word_cache.hpp"

namespace trireme::data {

struct BpeVocabulary;

/// Character that stands for a space in the tokens of a `CharacterForm`: U+2581.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

/// Cuts text into words that no merge joins, for a BPE that starts from characters. A merge joins two characters that
/// are the last of its left side and the first of its right side. So text may be cut between any two characters that
/// occur in no merge like this, and its tokens remain the same.
class CharacterWords {
 public:
  explicit CharacterWords(const BpeVocabulary& vocabulary);

  /// Adds the next words from `text` on, which is before `end`: at least one. Returns the end of the last one.
  const char* cut(const char* text, const char* end, WordBatch& words) const;
  /// Returns whether a word may contain both characters, one after the other.
  bool joins(std::string_view text, std::size_t at) const;

 private:
  enum class Cuts { by_merges, by_marks, by_both, nowhere };
  static constexpr int filter_bits = 19;

  const char* word_end(const char* text, const char* end) const;
  static Utf8Character character(const char* text, const char* end);
  static std::size_t filter_index(char32_t left, char32_t right);
  bool joins(char32_t left, char32_t right) const;

  Cuts cuts_;
  /// Bits of pairs of characters. Pairs may share a bit: then a word is longer than necessary.
  std::vector<std::uint64_t> filter_;
};

}  // namespace trireme::data
