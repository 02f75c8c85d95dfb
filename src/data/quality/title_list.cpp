#include "src/data/quality/title_list.hpp"

#include <vector>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view unknown_word = "<unk";  // how it begins

/// Returns the title of an article of WikiText whose first line is `line`, "= Title ="; empty if it is another line.
/// Headings of sections have more signs.
std::string_view title_of_article(std::string_view line) {
  if (line.size() < 5 || !line.starts_with("= ") || !line.ends_with(" =")) return {};
  line = line.substr(2, line.size() - 4);
  return line.starts_with('=') || line.ends_with('=') ? std::string_view() : stripped(line);
}

std::string key_of(std::string_view title) {
  std::string key;
  const std::string text = composed(title);
  for_each_character(std::string_view(text), [&](Utf8Character c, std::string_view bytes) {
    if (c.code_point != '_' && (c.size_bytes == 0 || !is_python_space(c.code_point))) key += bytes;
  });
  return key;
}

std::string without_signs_of_wikitext(std::string_view title) {
  std::string result(title);
  for (const char* sign : {"-", ",", "."}) result = replaced(result, fmt::format("@{}@", sign), sign);
  return result;
}

}  // namespace

TitleList::TitleList(std::string_view lines) {
  std::vector<std::string_view> stripped_lines{""};
  for (const std::string_view line : split(lines, '\n')) stripped_lines.push_back(stripped(line));
  stripped_lines.emplace_back();
  for (std::size_t i = 1; i + 1 < stripped_lines.size(); ++i) {
    const std::string_view title = title_of_article(stripped_lines[i]);
    if (title.empty() || !stripped_lines[i - 1].empty() || !stripped_lines[i + 1].empty()) continue;
    TRIREME_CHECK(title.find(unknown_word) == title.npos, DataError,
                  "the title \"{}\" has unknown words: take WikiText's raw file, which has them", title);
    titles_.insert(key_of(without_signs_of_wikitext(title)));
  }
  if (!titles_.empty()) return;
  for (const std::string_view line : stripped_lines) {
    if (!line.empty()) titles_.insert(key_of(line));
  }
}

bool TitleList::contains(std::string_view title) const { return titles_.contains(key_of(title)); }

}  // namespace trireme::data
