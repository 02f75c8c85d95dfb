#include "src/data/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {

AddedTokens::AddedTokens(std::vector<AddedText> tokens) : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = tokens_[i].text;
    TRIREME_CHECK(!text.empty() && text.size() <= max_bytes, DataError,
                  "the added token '{}' has {} bytes, not 1 to {}", quotation_of(text), text.size(), max_bytes);
    by_byte_[static_cast<unsigned char>(text[0])].push_back(static_cast<std::uint32_t>(i));
  }
  for (auto& indices : by_byte_) {
    std::ranges::stable_sort(indices, std::ranges::greater{}, [&](std::uint32_t i) { return tokens_[i].text.size(); });
  }
}

/// Returns whether neither neighbour of the token at byte `at` matches \w.
bool AddedTokens::is_single_word(std::string_view text, std::size_t at, std::size_t size_bytes) {
  const auto is_word_at = [&](std::size_t begin) {
    const Utf8Character c = decode_utf8(text.data() + begin, text.data() + text.size());
    return c.size_bytes > 0 && is_word_character(c.code_point);
  };
  const std::size_t end = at + size_bytes;
  return (at == 0 || !is_word_at(character_begin(text, at - 1))) && (end == text.size() || !is_word_at(end));
}

std::size_t AddedTokens::size_before(std::string_view text, const AddedText& token) {
  std::size_t size = text.size();
  while (token.properties.lstrip && size > 0) {
    const std::size_t begin = character_begin(text, size - 1);
    const Utf8Character c = decode_utf8(text.data() + begin, text.data() + size);
    if (c.size_bytes == 0 || !is_white_space(c.code_point)) break;
    size = begin;
  }
  return size;
}

std::size_t AddedTokens::size_after(std::string_view text, const AddedText& token) {
  std::size_t size = 0;
  while (token.properties.rstrip && size < text.size()) {
    const Utf8Character c = decode_utf8(text.data() + size, text.data() + text.size());
    if (c.size_bytes == 0 || !is_white_space(c.code_point)) break;
    size += static_cast<std::size_t>(c.size_bytes);
  }
  return size;
}

bool AddedTokens::can_cut(std::string_view text, std::size_t at) const {
  return std::ranges::none_of(tokens_, [&](const AddedText& token) {
    for (std::size_t before = 1; before < std::min(token.text.size(), at + 1); ++before) {
      if (text.substr(at - before).starts_with(token.text)) return true;
    }
    return token.properties.rstrip && text.substr(0, at).ends_with(token.text);
  });
}

bool AddedTokens::are_at_end_of(std::string_view text) const {
  return std::ranges::any_of(tokens_, [&](const AddedText& token) { return text.ends_with(token.text); });
}

}  // namespace trireme::data
