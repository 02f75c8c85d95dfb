#include "src/data/tasks/task_text.hpp"

#include "src/base/parse_number.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {

bool TextLines::next() {
  if (rest_.empty()) return false;
  const std::size_t end = rest_.find_first_of("\r\n");
  line_ = rest_.substr(0, end);
  const std::size_t ending = end == rest_.npos ? 0 : rest_.substr(end).starts_with("\r\n") ? 2 : 1;
  rest_.remove_prefix(line_.size() + ending);
  ++number_;
  return true;
}

std::string clean_text(std::string_view text) {
  std::string cleaned;
  bool after_space = false;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    const bool is_space = is_python_space(c.code_point);
    if (!is_space || !after_space) cleaned += is_space ? " " : bytes;
    after_space = is_space;
  });
  for (int pass = 0; pass < 3; ++pass) {
    std::size_t written = 0;
    for (std::size_t read = 0; read < cleaned.size(); ++read) {
      if (cleaned.compare(read, 3, " . ") == 0) {
        cleaned[written++] = '.';
        cleaned[written++] = ' ';
        read += 2;
      } else {
        cleaned[written++] = cleaned[read];
      }
    }
    cleaned.resize(written);
  }
  return cleaned;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  text = stripped(text);
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  std::string digits = text.starts_with('-') ? "-" : "";
  bool after_digit = false;
  for (const char c : text.substr(has_sign ? 1 : 0)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c != '_' || !after_digit)) return std::nullopt;
    if (is_digit) digits += c;
    after_digit = is_digit;
  }
  return after_digit ? parse_number<std::int64_t>(digits) : std::nullopt;
}

}  // namespace trireme::data
