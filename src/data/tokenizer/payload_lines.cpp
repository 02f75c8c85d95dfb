#include "src/data/tokenizer/payload_lines.hpp"

#include <charconv>

#include "src/base/text.hpp"

namespace trireme::data {
std::string escape_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    if (c >= ' ' && c <= '~' && c != '\\') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

std::string unescape_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    unsigned value = 0;
    const char* const digits = text.data() + i + 2;
    TRIREME_CHECK(
        i + 4 <= text.size() && text[i + 1] == 'x' && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2,
        DataError, "broken escape in '{}'", quotation_of(text));
    bytes += static_cast<char>(value);
    i += 3;
  }
  return bytes;
}

std::string quotation_of(std::string_view bytes) { return shortened(escape_bytes(bytes)); }

std::string_view PayloadLines::line() {
  ++number_;
  const std::size_t end = rest_.find('\n');
  TRIREME_CHECK(end != std::string_view::npos, DataError, "the embedded tokenizer is cut off at line {}", number_);
  const std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  return line;
}

void PayloadLines::title(std::string_view expected) {
  TRIREME_CHECK(line() == expected, DataError, "the embedded tokenizer does not start with '{}'", expected);
}

std::vector<std::string> PayloadLines::texts(std::int64_t count) {
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < count; ++i) texts.push_back(unescape_bytes(line()));
  return texts;
}

void PayloadLines::finish() const {
  TRIREME_CHECK(rest_.empty(), DataError, "the embedded tokenizer continues after its {} lines", number_);
}

void PayloadLines::refuse(std::string_view text) const {
  throw DataError("the embedded tokenizer is damaged: line {} is '{}'", number_, escape_bytes(text.substr(0, 80)));
}

}  // namespace trireme::data
