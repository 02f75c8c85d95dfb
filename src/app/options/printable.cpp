#include "src/app/options/printable.hpp"

#include <fmt/format.h>

#include "src/data/text/utf8.hpp"

namespace trireme::app {

std::string printable(std::string_view bytes) {
  std::string text;
  const char* const end = bytes.data() + bytes.size();
  for (const char* at = bytes.data(); at != end;) {
    const data::Utf8Character character = data::decode_utf8(at, end);
    const bool is_control =
        character.code_point < 0x20 || (character.code_point >= 0x7F && character.code_point < 0xA0);
    if (*at == '\n') {
      text += "\\n";
    } else if (*at == '\\') {
      text += "\\\\";
    } else if (character.size_bytes == 0 || is_control) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(*at));
      at += 1;
      continue;
    } else {
      text.append(at, static_cast<std::size_t>(character.size_bytes));
    }
    at += character.size_bytes;
  }
  return text;
}

std::string shortened(std::string_view word) {
  constexpr std::size_t longest = 120, kept = 40;
  if (word.size() <= longest) return printable(word);
  return fmt::format("{}...{} ({} characters)", printable(word.substr(0, kept)),
                     printable(word.substr(word.size() - kept)), word.size());
}

}  // namespace trireme::app
