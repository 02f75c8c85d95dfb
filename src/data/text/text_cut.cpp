#include "src/data/text/text_cut.hpp"

#include <algorithm>

namespace trireme::data {

bool is_word_cut(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size() || !is_ascii_space(text[at])) return false;
  const auto before = static_cast<unsigned char>(text[at - 1]);
  if (before < 0x80) return before > ' ' && before != 0x7F;
  // White space beyond ASCII: U+0085, U+00A0, U+1680, U+2000 to U+205F and U+3000; whole ranges, to be brief.
  const std::string_view tail = text.substr(at >= 3 ? at - 3 : 0, std::min<std::size_t>(at, 3));
  const bool two_bytes = tail.ends_with("\xC2\x85") || tail.ends_with("\xC2\xA0");
  const bool three_bytes = tail.starts_with("\xE1\x9A") || tail.starts_with("\xE2\x80") ||
                           tail.starts_with("\xE2\x81") || tail.starts_with("\xE3\x80");
  return !two_bytes && !three_bytes;
}

}  // namespace trireme::data
