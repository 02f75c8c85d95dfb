#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Returns whether byte `c` is ASCII white space.
constexpr bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Unicode's property White_Space.
constexpr bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Returns whether `c` is white space to Python's str.split, str.strip and re's \s: Unicode's property White_Space and
/// the separators U+001C to U+001F.
constexpr bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

/// Bytes at which the first and the last word of a text begin, and the last one ends; words are those of Python's
/// str.split. All are 0 in a text without words.
struct WordExtent {
  std::size_t first_word = 0, last_word = 0, end = 0;
};
WordExtent word_extent(std::string_view text);

/// The lines of `text` without their ends: Python's str.splitlines.
std::vector<std::string_view> lines_of(std::string_view text);

/// Returns `text` without white space at its ends: Python's str.strip.
std::string_view stripped(std::string_view text);

/// Returns `text` with each occurrence of `from`, which is not empty, replaced, from left to right.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// Returns whether byte `at` of `text` is ASCII white space after another character, judged by its last three bytes. No
/// word of GPT-2's pattern contains both, or depends on earlier text.
bool is_word_cut(std::string_view text, std::size_t at);

/// The words of a text: the characters between white space, in lower case, with punctuation. White space and case are
/// Python's str.split and Unicode's simple lower-case mapping. Bytes that are not UTF-8 are kept.
class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text) {}

  /// Advances to the next word. Returns false at the end.
  bool next();

  /// The word in lower case; valid until `next`.
  std::string_view word() const { return word_; }
  /// Position of the word in the text.
  std::size_t begin() const { return begin_; }
  std::size_t end() const { return end_; }

 private:
  std::string_view text_;
  std::string word_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// The words of a text with one space between them: equal for two texts that differ in case and white space only.
std::string folded(std::string_view text);

}  // namespace trireme::data
