#include "src/base/visible.hpp"

#include <fmt/format.h>

namespace trireme {

std::string visible(std::string_view text, std::string_view kept) {
  std::string result;
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_c1 = byte(i) == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0;  // U+0080 to U+009F in UTF-8
    if (kept.find(text[i]) != kept.npos || (byte(i) >= 0x20 && byte(i) != 0x7F && !is_c1)) {
      result += text[i];
    } else if (text[i] == '\n') {
      result += "\\n";
    } else if (text[i] == '\t') {
      result += "\\t";
    } else {
      result += fmt::format("\\x{:02x}", byte(i));
      if (is_c1) result += fmt::format("\\x{:02x}", byte(++i));
    }
  }
  return result;
}

}  // namespace trireme
