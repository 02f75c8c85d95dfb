#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/text/words.hpp"
#include "src/data/tokenizer/special_tokens.hpp"

namespace trireme::data {

/// A token that is found in a text before its words are.
struct AddedText {
  std::string text;
  std::int32_t id = -1;
  /// `lstrip`, `rstrip`: white space before it, or after it, belongs to it. `single_word`: it is text beside a
  /// character of words.
  AddedToken properties = {};
};

/// Finds tokens in texts, from left to right, the longest of several at the same byte.
class AddedTokens {
 public:
  static constexpr std::size_t max_bytes = 1024;  ///< limit of a token

  /// Throws DataError if a token is too long.
  explicit AddedTokens(std::vector<AddedText> tokens);

  bool empty() const { return tokens_.empty(); }
  /// Calls `take_part(std::string_view)` for each stretch of text that is not empty, and `take_id(id, begin)` for each
  /// token, which begins at that byte.
  template <class TakePart, class TakeId>
  void split(std::string_view text, const TakePart& take_part, const TakeId& take_id) const {
    std::size_t begin = 0;
    for (std::size_t at = 0; !empty() && at < text.size();) {
      const AddedText* const found = at_front(text.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      if (found->properties.single_word && !is_single_word(text, at, found->text.size())) {
        at += found->text.size();
        continue;
      }
      const std::size_t end = begin + size_before(text.substr(begin, at - begin), *found);
      if (end > begin) take_part(text.substr(begin, end - begin));
      take_id(found->id, end);
      at += found->text.size();
      at += size_after(text.substr(at), *found);
      begin = at;
    }
    if (begin < text.size()) take_part(text.substr(begin));
  }
  /// Returns whether the same tokens are found if `text` is cut before byte `at`, which is white space after another
  /// character.
  bool can_cut(std::string_view text, std::size_t at) const;
  /// Returns whether `text` ends with one of the tokens.
  bool are_at_end_of(std::string_view text) const;

 private:
  const AddedText* at_front(std::string_view text) const;
  static bool is_single_word(std::string_view text, std::size_t at, std::size_t size_bytes);
  static std::size_t size_before(std::string_view text, const AddedText& token);
  static std::size_t size_after(std::string_view text, const AddedText& token);

  std::vector<AddedText> tokens_;
  std::array<std::vector<std::uint32_t>, 256>
      by_byte_;  // indices of the tokens with this first byte, the longest first
};

inline const AddedText* AddedTokens::at_front(std::string_view text) const {
  for (const std::uint32_t i : by_byte_[static_cast<unsigned char>(text[0])]) {
    if (text.starts_with(tokens_[i].text)) return &tokens_[i];
  }
  return nullptr;
}

}  // namespace trireme::data
