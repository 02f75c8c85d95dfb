#include "src/data/text/joined_lines.hpp"

#include <algorithm>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data {

std::string joined_lines(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool follows_word = false;
  const auto end_of_run = [&](std::size_t begin) {
    return std::min(text.find_first_not_of(text[begin], begin), text.size());
  };
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || (text[at] == '\n' && follows_word)) {
      const bool ends_line = text[at] == '\n';
      at = end_of_run(at);
      if (ends_line && at < text.size() && text[at] == ' ') ++at;
      result += ' ';
      follows_word = false;
      continue;
    }
    const Utf8Character c = decode_utf8(text.data() + at, text.data() + text.size());
    const auto size = static_cast<std::size_t>(std::max(c.size_bytes, 1));
    result += text.substr(at, size);
    follows_word = c.size_bytes != 0 && is_python_word_character(c.code_point);
    at += size;
  }
  return result;
}

}  // namespace trireme::data
