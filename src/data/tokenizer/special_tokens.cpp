#include "src/data/tokenizer/special_tokens.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view special_title = "trireme special tokens 1";
constexpr std::int64_t max_special_lines = std::int64_t{1} << 24;

constexpr std::array<std::pair<std::string_view, std::optional<std::int32_t> SpecialTokens::*>, 3> roles{
    {{"bos", &SpecialTokens::bos}, {"eos", &SpecialTokens::eos}, {"pad", &SpecialTokens::pad}}};
constexpr std::array<std::pair<std::string_view, std::vector<std::int32_t> SpecialTokens::*>, 2> lists{
    {{"stops", &SpecialTokens::stops}, {"prefix", &SpecialTokens::prefix}}};
constexpr std::array<bool AddedToken::*, 5> properties{
    &AddedToken::special, &AddedToken::single_word, &AddedToken::lstrip, &AddedToken::rstrip, &AddedToken::normalized};

/// Reads the words of one line after its first.
class SpecialLine {
 public:
  explicit SpecialLine(std::string_view line) : line_(line), words_(split(line, ' ')) {}

  std::string_view word(std::size_t at) const { return at < words_.size() ? words_[at] : refuse(); }
  std::size_t size() const { return words_.size(); }
  std::int32_t id(std::string_view text) const {
    const std::int64_t value = parse_number<std::int64_t>(text).value_or(-1);
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) refuse();
    return static_cast<std::int32_t>(value);
  }
  AddedToken token(std::string_view text) const {
    if (text.size() != properties.size() || text.find_first_not_of("01") != text.npos) refuse();
    AddedToken token;
    for (std::size_t i = 0; i < properties.size(); ++i) token.*properties[i] = text[i] == '1';
    return token;
  }
  [[noreturn]] std::string_view refuse() const {
    throw DataError("the embedded tokenizer is damaged: its special tokens hold the line '{}'", shortened(line_));
  }

 private:
  std::string_view line_;
  std::vector<std::string_view> words_;
};

void read_line(std::string_view line, SpecialTokens& special) {
  const SpecialLine words(line);
  const std::string_view key = words.word(0);
  for (const auto& [name, member] : roles) {
    if (key == name) special.*member = words.id(words.word(1));
  }
  for (const auto& [name, member] : lists) {
    for (std::size_t i = 1; key == name && i < words.size(); ++i) (special.*member).push_back(words.id(words.word(i)));
  }
  if (key == "added") special.added[words.id(words.word(1))] = words.token(words.word(2));
  if (key == "file") {
    const std::string_view name = words.word(1);
    const std::size_t text = std::min(line.size(), key.size() + name.size() + 2);
    special.files[std::string(name)] = unescape_bytes(line.substr(text));
  }
}

}  // namespace

std::optional<std::int32_t> SpecialTokens::beginning() const { return bos || prefix.empty() ? bos : prefix.back(); }

std::int32_t SpecialTokens::max_id() const {
  std::int32_t max = added.empty() ? -1 : added.rbegin()->first;
  for (const auto& [name, member] : roles) max = std::max(max, (this->*member).value_or(-1));
  for (const auto& [name, member] : lists) {
    for (const std::int32_t id : this->*member) max = std::max(max, id);
  }
  return max;
}

std::string special_tokens_text(const SpecialTokens& special) {
  std::vector<std::string> lines;
  for (const auto& [name, member] : roles) {
    if (const auto& id = special.*member) lines.push_back(fmt::format("{} {}", name, *id));
  }
  for (const auto& [name, member] : lists) {
    const std::vector<std::int32_t>& ids = special.*member;
    if (!ids.empty()) lines.push_back(fmt::format("{} {}", name, fmt::join(ids, " ")));
  }
  for (const auto& [id, token] : special.added) {
    lines.push_back(fmt::format("added {} ", id));
    for (const auto property : properties) lines.back() += token.*property ? '1' : '0';
  }
  for (const auto& [name, text] : special.files) lines.push_back(fmt::format("file {} {}", name, escape_bytes(text)));
  if (lines.empty()) return {};
  std::string text = fmt::format("{}\n{}\n", special_title, lines.size());
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

SplitPayload split_payload(std::string_view payload) {
  SplitPayload parts{{}, payload};
  if (!payload.starts_with(special_title)) return parts;
  PayloadLines lines(payload);
  lines.title(special_title);
  const auto [count] = lines.numbers<1>(max_special_lines);
  for (std::int64_t i = 0; i < count; ++i) read_line(lines.line(), parts.special);
  parts.definition = lines.rest();
  return parts;
}

}  // namespace trireme::data
