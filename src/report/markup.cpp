#include "src/report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/utf8.hpp"

namespace trireme::report {

std::string escaped(std::string_view text) {
  using Entity = std::pair<char32_t, std::string_view>;
  constexpr Entity entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  constexpr std::string_view replacement = "\xef\xbf\xbd";
  std::string result;
  for_each_character(text, [&](Utf8Character character, std::string_view bytes) {
    const char32_t c = character.code_point;
    if (character.size_bytes == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      result += replacement;
      return;
    }
    const auto* const entity = std::ranges::find(entities, c, &Entity::first);
    result += entity == std::end(entities) ? bytes : entity->second;
  });
  return result;
}

std::string element(std::string_view name, std::string_view attributes, std::string_view content) {
  return fmt::format("<{}{}{}>{}</{}>", name, attributes.empty() ? "" : " ", attributes, content, name);
}

std::string text_element(std::string_view name, std::string_view css_class, std::string_view text) {
  return element(name, css_class.empty() ? "" : fmt::format("class=\"{}\"", css_class), escaped(text));
}

}  // namespace trireme::report
