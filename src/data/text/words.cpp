#include "src/data/text/words.hpp"

#include <algorithm>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data {
namespace {

/// Ends of lines in Python's str.splitlines, in which \r\n is one.
constexpr bool ends_line(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

WordExtent word_extent(std::string_view text) {
  WordExtent extent;
  bool in_word = false;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    const bool is_space = is_python_space(c.code_point);
    const auto at = static_cast<std::size_t>(bytes.data() - text.data());
    if (!is_space && !in_word) {
      if (extent.end == 0) extent.first_word = at;
      extent.last_word = at;
    }
    in_word = !is_space;
    if (in_word) extent.end = at + bytes.size();
  });
  return extent;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    const auto at = static_cast<std::size_t>(bytes.data() - text.data());
    if (c.size_bytes == 0 || !ends_line(c.code_point)) return;
    if (c.code_point == '\n' && at > 0 && at == begin && text[at - 1] == '\r') {
      begin = at + 1;
      return;
    }
    lines.push_back(text.substr(begin, at - begin));
    begin = at + bytes.size();
  });
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string_view stripped(std::string_view text) {
  const WordExtent extent = word_extent(text);
  return text.substr(extent.first_word, extent.end - extent.first_word);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const std::size_t at = text.find(from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += to;
    text.remove_prefix(at + from.size());
  }
}

bool is_word_cut(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size() || !is_ascii_space(text[at])) return false;
  const auto before = static_cast<unsigned char>(text[at - 1]);
  if (before < 0x80) return before > ' ' && before != 0x7F;
  // White space beyond ASCII: U+0085, U+00A0, U+1680, U+2000 to U+205F and U+3000; entire ranges, for brevity.
  const std::string_view tail = text.substr(at >= 3 ? at - 3 : 0, std::min<std::size_t>(at, 3));
  const bool two_bytes = tail.ends_with("\xC2\x85") || tail.ends_with("\xC2\xA0");
  const bool three_bytes = tail.starts_with("\xE1\x9A") || tail.starts_with("\xE2\x80") ||
                           tail.starts_with("\xE2\x81") || tail.starts_with("\xE3\x80");
  return !two_bytes && !three_bytes;
}

bool WordReader::next() {
  word_.clear();
  const char* const text_end = text_.data() + text_.size();
  const char* at = text_.data() + end_;
  while (at != text_end) {
    const auto byte = static_cast<unsigned char>(*at);
    // A byte that is not UTF-8 is a separate character without lower case.
    const Utf8Character c = byte < 0x80 ? Utf8Character{byte, 1} : decode_utf8(at, text_end);
    const int size_bytes = c.size_bytes == 0 ? 1 : c.size_bytes;
    if (c.size_bytes != 0 && is_python_space(c.code_point)) {
      if (!word_.empty()) break;
    } else {
      if (word_.empty()) begin_ = static_cast<std::size_t>(at - text_.data());
      if (byte < 0x80) {
        word_ += static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
      } else if (c.size_bytes == 0) {
        word_ += *at;
      } else {
        append_utf8(lower_case(c.code_point), word_);
      }
    }
    at += size_bytes;
  }
  end_ = static_cast<std::size_t>(at - text_.data());
  return !word_.empty();
}

std::string folded(std::string_view text) {
  std::string result;
  for (WordReader words(text); words.next();) {
    if (!result.empty()) result += ' ';
    result += words.word();
  }
  return result;
}

}  // namespace trireme::data
