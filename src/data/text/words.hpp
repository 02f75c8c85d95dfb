#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::data {

/// Returns whether byte `c` is ASCII white space.
constexpr bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Returns whether byte `at` of `text` is ASCII white space after another character, judged by its last three bytes. No
/// word of GPT-2's pattern contains both, and none looks back.
bool is_word_cut(std::string_view text, std::size_t at);

/// The words of a text: the characters between white space, in lower case, with punctuation. White space and case are
/// Python's str.split and Unicode's simple lower-case mapping. Bytes that are not UTF-8 stay as they are.
class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text) {}

  /// Moves on to the next word. False at the end.
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
