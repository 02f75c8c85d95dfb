#include "src/app/options/help_text.hpp"

#include <algorithm>

namespace trireme::app {
namespace {

constexpr std::size_t help_column = 34;
constexpr std::size_t help_width = 110;

}  // namespace

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
