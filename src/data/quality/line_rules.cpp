#include "src/data/quality/line_rules.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>

#include "src/base/utf8.hpp"
#include "src/data/quality/quality_rules.hpp"
#include "src/data/quality/separated_words.hpp"
#include "src/data/text/sentence_splitter.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

std::vector<std::string_view> words_between_space(std::string_view text) {
  std::vector<std::string_view> words;
  for (WordReader reader(text); reader.next();)
    words.push_back(text.substr(reader.begin(), reader.end() - reader.begin()));
  return words;
}

/// Removes [2], [], [edit] and [citation needed].
std::string without_citations(std::string_view line) {
  std::string result;
  while (!line.empty()) {
    const std::size_t open = std::min(line.find('['), line.size());
    result += line.substr(0, open);
    line.remove_prefix(open);
    if (line.empty()) break;
    std::size_t size = 1;
    for (const std::string_view citation : {"[edit]", "[citation needed]"}) {
      if (line.starts_with(citation)) size = citation.size();
    }
    const std::size_t end = line.find_first_not_of("0123456789", 1);
    if (end != line.npos && line[end] == ']') size = end + 1;
    if (size == 1) result += '[';
    line.remove_prefix(size);
  }
  return result;
}

}  // namespace

std::vector<std::string_view> parts_of(std::string_view text, std::size_t min_feeds) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t at = text.find('\n'); at != text.npos;) {
    const std::size_t end = std::min(text.find_first_not_of('\n', at), text.size());
    if (end - at >= min_feeds) {
      parts.push_back(text.substr(begin, at - begin));
      begin = end;
    }
    at = text.find('\n', end);
  }
  parts.push_back(text.substr(begin));
  return parts;
}

Repetition repetition_of(const std::vector<std::string_view>& parts) {
  std::unordered_set<std::string_view> earlier;
  Repetition result;
  result.all = static_cast<double>(parts.size());
  for (const std::string_view part : parts) {
    if (earlier.insert(part).second) continue;
    ++result.repeated;
    result.repeated_characters += static_cast<double>(count_characters(part));
  }
  return result;
}

std::optional<BrokenRule> c4(std::string& text, const C4Bounds& bounds) {
  constexpr std::array<std::string_view, 6> policies{"terms of use", "privacy policy", "cookie policy",
                                                     "uses cookies", "use of cookies", "use cookies"};
  std::string kept;
  double sentences = 0;
  for (const std::string_view line : lines_of(text)) {
    const std::vector<std::string_view> words = words_between_space(line);
    if (std::ranges::any_of(words, [&](std::string_view word) {
          return static_cast<double>(count_characters(word)) > bounds.max_word_length;
        })) {
      continue;
    }
    const std::string cited = without_citations(stripped(line));
    if (cited.empty() || std::string_view(".?!\"'").find(cited.back()) == std::string_view::npos ||
        cited.ends_with("...")) {
      continue;
    }
    if (static_cast<double>(words.size()) < bounds.min_line_words) continue;
    const std::string lower = characters_in_lower_case(cited);
    const auto mentions = [&](std::string_view phrase) { return lower.find(phrase) != std::string::npos; };
    if (mentions("lorem ipsum")) return BrokenRule{"c4.lorem-ipsum", 1};
    if (mentions("javascript")) continue;
    if (mentions("{")) return BrokenRule{"c4.curly-bracket", 1};
    if (std::ranges::any_of(policies, mentions)) continue;
    sentences += static_cast<double>(sentence_ends(cited).size());
    if (!kept.empty()) kept += '\n';
    kept += cited;
  }
  if (sentences < bounds.min_sentences) return BrokenRule{"c4.min-sentences", sentences};
  text = stripped(kept);
  return std::nullopt;
}

std::optional<BrokenRule> c4_paragraphs(std::string_view text, const C4ParagraphBounds& bounds) {
  double long_enough = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (static_cast<double>(count_characters(text.substr(begin, end - begin))) >= bounds.min_length) ++long_enough;
    begin = end + 1;
  }
  if (long_enough < bounds.min_paragraphs) return BrokenRule{"c4-paragraphs.min-paragraphs", long_enough};
  return std::nullopt;
}

std::optional<BrokenRule> fineweb(std::string_view text, const FineWebBounds& bounds) {
  std::vector<std::string_view> lines;
  double punctuated = 0, short_lines = 0;
  for (const std::string_view line : parts_of(text, 1)) {
    if (stripped(line).empty()) continue;
    lines.push_back(line);
    const std::string_view last = line.substr(character_begin(line, line.size() - 1));
    const char32_t mark = decode_utf8(last.data(), last.data() + last.size()).code_point;
    if (is_sentence_mark(mark) && mark != 0x2026) ++punctuated;
    if (static_cast<double>(count_characters(line)) <= bounds.short_line) ++short_lines;
  }
  const auto count = static_cast<double>(lines.size());
  if (share(punctuated, count) < bounds.min_punctuated_lines) {
    return BrokenRule{"fineweb.min-punctuated-lines", share(punctuated, count)};
  }
  if (share(short_lines, count) > bounds.max_short_lines) {
    return BrokenRule{"fineweb.max-short-lines", share(short_lines, count)};
  }
  const auto feeds = static_cast<double>(std::ranges::count(text, '\n'));
  const double repeated =
      share(repetition_of(lines).repeated_characters, static_cast<double>(count_characters(text)) - feeds);
  if (repeated > bounds.repeated_line_characters) return BrokenRule{"fineweb.line-characters", repeated};
  std::vector<std::string_view> words;
  separated_words(text, words);
  const double newlines = share(feeds, static_cast<double>(words.size()));
  if (newlines > bounds.max_newlines) return BrokenRule{"fineweb.max-newlines", newlines};
  return std::nullopt;
}

}  // namespace trireme::data
