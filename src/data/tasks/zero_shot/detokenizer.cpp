#include "src/data/tasks/zero_shot/detokenizer.hpp"

#include <initializer_list>
#include <utility>

#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

struct Replacement {
  std::string_view from, to;
};

/// Replaces every occurrence of `from`, left to right, without overlap.
std::string replaced(std::string_view text, const Replacement& rule) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const std::size_t at = text.find(rule.from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += rule.to;
    text.remove_prefix(at + rule.from.size());
  }
}

std::string replaced(std::string text, std::initializer_list<Replacement> rules) {
  for (const Replacement& rule : rules) text = replaced(std::string_view(text), rule);
  return text;
}

/// Replaces "/' D/", D an ASCII digit, by "/'[0-9]/": the original inserts the pattern as text.
std::string with_digits_lost(std::string_view text) {
  constexpr std::string_view front = "/' ";
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const std::size_t at = text.find(front);
    if (at == std::string_view::npos) return result.append(text);
    const std::string_view rest = text.substr(at + front.size());
    const bool matches = rest.size() >= 2 && rest[0] >= '0' && rest[0] <= '9' && rest[1] == '/';
    result.append(text.substr(0, at)).append(matches ? "/'[0-9]/" : "/");
    text.remove_prefix(matches ? at + front.size() + 2 : at + 1);
  }
}

/// Removes the white space inside each pair of brackets or quotes. A pair ends with the first `close` after `open`.
std::string tightened(std::string_view text, char open, char close) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const std::size_t begin = text.find(open);
    const std::size_t end = begin == std::string_view::npos ? begin : text.find(close, begin + 1);
    if (end == std::string_view::npos) return result.append(text);
    result.append(text.substr(0, begin + 1)).append(stripped(text.substr(begin + 1, end - begin - 1))) += close;
    text.remove_prefix(end + 1);
  }
}

std::string without_wikitext_spaces(std::string text) {
  text = with_digits_lost(replaced(std::move(text), {{"s '", "s'"}}));
  text = replaced(std::move(text), {{" @-@ ", "-"},
                                    {" @,@ ", ","},
                                    {" @.@ ", "."},
                                    {" : ", ": "},
                                    {" ; ", "; "},
                                    {" . ", ". "},
                                    {" ! ", "! "},
                                    {" ? ", "? "},
                                    {" , ", ", "}});
  constexpr std::pair<char, char> pairs[] = {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}};
  for (const auto& [open, close] : pairs) text = tightened(text, open, close);
  return replaced(std::move(text), {{"= = = =", "===="},
                                    {"= = =", "==="},
                                    {"= =", "=="},
                                    {" \xC2\xB0 ", "\xC2\xB0"},  // the sign of degrees
                                    {" \n", "\n"},
                                    {"\n ", "\n"},
                                    {" N ", " 1 "},
                                    {" 's", "'s"}});
}

}  // namespace

Detokenizer detokenizer_of(std::string_view path) {
  constexpr std::pair<std::string_view, Detokenizer> rules[] = {
      {"ptb", Detokenizer::ptb}, {"wiki", Detokenizer::wikitext}, {"lambada", Detokenizer::lambada}};
  for (const auto& [part, rule] : rules) {
    if (path.find(part) != std::string_view::npos) return rule;
  }
  return Detokenizer::none;
}

const char* name_of(Detokenizer detokenizer) {
  constexpr const char* names[] = {"none", "ptb", "wikitext", "lambada"};
  return names[static_cast<int>(detokenizer)];
}

std::string detokenized(std::string text, Detokenizer detokenizer) {
  if (detokenizer == Detokenizer::wikitext) return without_wikitext_spaces(std::move(text));
  if (detokenizer != Detokenizer::ptb) return text;
  return replaced(
      std::move(text),
      {{" '", "'"}, {" \n", "\n"}, {"\n ", "\n"}, {" n't", "n't"}, {" N ", "1 "}, {"$ 1", "$1"}, {"# 1", "#1"}});
}

}  // namespace trireme::data
