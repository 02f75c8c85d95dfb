#include "src/app/manual/terminal_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/utf8.hpp"

namespace trireme::app {
namespace {

constexpr std::size_t help_column = 34;
constexpr std::size_t help_width = 110;

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  for_each_character(bytes, [&](Utf8Character c, std::string_view spelling) {
    const bool is_control = c.code_point < 0x20 || (c.code_point >= 0x7F && c.code_point < 0xA0);
    if (spelling == "\n") {
      text += "\\n";
    } else if (spelling == "\\") {
      text += "\\\\";
    } else if (c.size_bytes == 0 || is_control) {
      for (const char byte : spelling) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else {
      text += spelling;
    }
  });
  return text;
}

std::string shortened(std::string_view word) {
  constexpr std::size_t max_bytes = 120, kept = 40;
  if (word.size() <= max_bytes) return printable(word);
  return fmt::format("{}...{} ({} characters)", printable(word.substr(0, kept)),
                     printable(word.substr(word.size() - kept)), word.size());
}

std::string single_quoted(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view plain = "=abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@%";
  const bool is_plain = !text.empty() && text.find_first_not_of(plain) == text.npos && text[0] != '=';
  return is_plain ? std::string(text) : fmt::format("'{}'", single_quoted(text));
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (column > indent && column + 1 + end - begin > help_width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result.append(text, begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return result;
}

std::string help_line(const std::string& left, const std::string& right) {
  std::string line = "  " + left;
  if (line.size() + 2 > help_column)
    line.append("\n").append(help_column, ' ');
  else
    line.resize(help_column, ' ');
  return line + wrapped(right, help_column) + "\n";
}

}  // namespace trireme::app
