#include "src/report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "src/data/text/utf8.hpp"

namespace trireme::report {

std::string escaped(std::string_view text) {
  constexpr std::string_view replacement = "\xef\xbf\xbd";
  std::string result;
  while (!text.empty()) {
    const auto [code_point, size_bytes] = data::decode_utf8(text.data(), text.data() + text.size());
    const std::string_view character = text.substr(0, static_cast<std::size_t>(std::max(size_bytes, 1)));
    text.remove_prefix(character.size());
    const bool is_control = (code_point < 0x20 && code_point != '\n' && code_point != '\t') || code_point == 0x7f;
    if (size_bytes == 0 || is_control) {
      result += replacement;
    } else if (code_point == '&') {
      result += "&amp;";
    } else if (code_point == '<') {
      result += "&lt;";
    } else if (code_point == '>') {
      result += "&gt;";
    } else if (code_point == '"') {
      result += "&quot;";
    } else if (code_point == '\'') {
      result += "&#39;";
    } else {
      result += character;
    }
  }
  return result;
}

std::string element(std::string_view name, std::string_view attributes, std::string_view content) {
  return fmt::format("<{}{}{}>{}</{}>", name, attributes.empty() ? "" : " ", attributes, content, name);
}

std::string text_element(std::string_view name, std::string_view css_class, std::string_view text) {
  return element(name, css_class.empty() ? "" : fmt::format("class=\"{}\"", css_class), escaped(text));
}

}  // namespace trireme::report
