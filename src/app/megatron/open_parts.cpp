#include "src/app/megatron/open_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/app/options/terminal_text.hpp"

namespace trireme::app::megatron {
namespace {

constexpr char begins[] = {open_bare, open_quoted, '\0'};

/// Returns the name of `$NAME` or `${NAME}`; nothing of another part, as `$(COMMAND)` or `${NAME%.*}`.
std::string_view variable_of(std::string_view part) {
  part.remove_prefix(std::min(part.find_first_not_of('$'), part.size()));
  if (part.starts_with('{')) part = part.substr(1, part.size() - 2);
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return part.find_first_not_of(letters) == part.npos ? part : std::string_view();
}

}  // namespace

bool is_open(std::string_view word) { return word.find_first_of(begins) != word.npos; }

std::string written(std::string_view word) {
  std::string text(word);
  std::erase_if(text, [](char c) { return c == open_bare || c == open_quoted || c == open_end; });
  return text;
}

std::string pasted(std::string_view word) {
  if (word.empty()) return shell_word(word);
  std::string text;
  while (!word.empty()) {
    const bool opens = is_open(word.substr(0, 1));
    const std::size_t size = std::min(opens ? word.find(open_end) : word.find_first_of(begins), word.size());
    const std::string_view part = word.substr(opens ? 1 : 0, size - (opens ? 1 : 0));
    const std::string_view variable = opens ? variable_of(part) : std::string_view();
    const std::string_view quote = word[0] == open_quoted ? "\"" : "";
    text += variable.empty() ? shell_word(written(part)) : fmt::format("{0}${{{1}}}{0}", quote, variable);
    word.remove_prefix(std::min(size + (opens ? 1 : 0), word.size()));
  }
  return text;
}

}  // namespace trireme::app::megatron
