#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace trireme::data {

/// Cuts text into words as GPT-2's pattern does,
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
/// by hand, in time linear in the text. Letters (L*) and numbers (N*) go by Unicode's general category, \s by its
/// property White_Space. A byte that is not part of a UTF-8 character counts as one character of the third class, like
/// the U+FFFD that a decoder would put there.
class WordSplitter {
 public:
  WordSplitter();
  /// End of the word that starts at `text`, which is before `end`. What follows the word matters to where it ends, so
  /// `end` has to be the end of the whole text.
  const char* word_end(const char* text, const char* end) const;

 private:
  enum class Class : std::uint8_t { other, letter, number, space };
  struct Character {
    Class character_class;
    int size_bytes;
  };
  Character character(const char* text, const char* end) const;
  const char* run_end(const char* text, const char* end, Class wanted) const;
  const char* space_end(const char* text, const char* end) const;

  std::array<Class, 128> ascii_;
  std::vector<Class> classes_;  // of every code point
};

}  // namespace trireme::data
