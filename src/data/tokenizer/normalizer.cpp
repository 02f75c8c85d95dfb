#include "src/data/tokenizer/normalizer.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

using Kind = NormalizerStep::Kind;

bool is_normal_form(const NormalizerStep& step) { return step.kind <= Kind::nfkd; }

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Returns whether a step surely leaves `text` as it is.
bool changes_nothing(const NormalizerStep& step, std::string_view text) {
  return step.kind == Kind::nfc ? is_surely_composed(text)
                                : (is_normal_form(step) || step.kind == Kind::strip_marks) && is_ascii(text);
}

bool is_space_at(std::string_view text, std::size_t begin, std::size_t end) {
  const Utf8Character c = decode_utf8(text.data() + begin, text.data() + end);
  return c.size_bytes > 0 && is_white_space(c.code_point);
}

std::string stripped_left(std::string_view text) {
  while (!text.empty() && is_space_at(text, 0, text.size())) text.remove_prefix(skip_characters(text, 0, 1));
  return std::string(text);
}

std::string stripped_right(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = character_begin(text, text.size() - 1);
    if (!is_space_at(text, last, text.size())) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::string with_replaced(const Regex& regex, std::string_view text, std::string_view replacement) {
  std::string result;
  std::size_t at = 0;
  for (const auto& [begin, end] : regex.matches(text)) {
    result.append(text, at, begin - at).append(replacement);
    at = end;
  }
  return result.append(text, at);
}

bool replaces(const NormalizerStep& step) { return step.kind == Kind::replace || step.kind == Kind::replace_matches; }

}  // namespace

std::string Normalizer::applied(const NormalizerStep& step, std::string_view text) const {
  switch (step.kind) {
    case Kind::lower_case:
      return characters_in_lower_case(text);
    case Kind::prepend:
      return step.text + std::string(text);
    case Kind::replace:
      return replaced(text, step.text, step.replacement);
    case Kind::replace_matches:
      return with_replaced(regexes_.at(step.text), text, step.replacement);
    case Kind::precompiled:
      return charsmaps_.at(step.text).apply(text);
    case Kind::strip_left:
      return stripped_left(text);
    case Kind::strip_right:
      return stripped_right(text);
    case Kind::strip_marks:
      return without_marks(text);
    default:
      return normal_form(text, static_cast<NormalForm>(step.kind));
  }
}

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {
  constexpr double max_growth = 64;
  constexpr std::size_t max_prepended_bytes = 1024;
  double growth = 1;
  for (const NormalizerStep& step : steps_) {
    TRIREME_CHECK(!replaces(step) || !step.text.empty(), DataError,
                  "a step of the normalizer replaces an empty text by '{}'", quotation_of(step.replacement));
    TRIREME_CHECK(step.kind != Kind::prepend || step.text.size() <= max_prepended_bytes, DataError,
                  "the normalizer prepends {} bytes; at most {} are possible", step.text.size(), max_prepended_bytes);
    if (step.kind == Kind::precompiled) {
      charsmaps_.emplace(step.text, PrecompiledCharsmap(step.text));
      growth *= static_cast<double>(PrecompiledCharsmap::max_growth);
    }
    if (!replaces(step)) continue;
    if (step.kind == Kind::replace_matches) regexes_.emplace(step.text, Regex(step.text));
    // Empty matches may add a replacement before each byte.
    const auto replacement = static_cast<double>(step.replacement.size());
    growth *= step.kind == Kind::replace ? std::max(1.0, replacement / static_cast<double>(step.text.size()))
                                         : 1 + replacement;
  }
  TRIREME_CHECK(growth <= max_growth, DataError, "the normalizer may make a text more than {} times longer",
                max_growth);
}

std::string_view Normalizer::apply(std::string_view text, TextStart start, std::string& space) const {
  for (const NormalizerStep& step : steps_) {
    const bool is_unneeded = step.kind == Kind::prepend      ? text.empty() || start == TextStart::inside
                             : step.kind == Kind::strip_left ? start == TextStart::inside
                                                             : changes_nothing(step, text);
    if (is_unneeded) continue;
    std::string changed = applied(step, text);
    text = space = std::move(changed);
  }
  return text;
}

bool Normalizer::prepends() const {
  return std::ranges::any_of(steps_, [](const NormalizerStep& step) { return step.kind == Kind::prepend; });
}

bool Normalizer::is_by_character() const {
  return std::ranges::none_of(steps_, [](const NormalizerStep& step) {
    const bool is_by_neighbours = is_normal_form(step) || step.kind >= Kind::strip_left;
    return is_by_neighbours || (step.kind == Kind::replace && count_characters(step.text) > 1);
  });
}

bool Normalizer::can_cut_after(char last) const {
  // A normal form and a charsmap look at neighbours. ASCII and white space have none that they combine with, unless
  // made by a step.
  bool are_original = static_cast<unsigned char>(last) < 0x80;
  for (const NormalizerStep& step : steps_) {
    // Right of the cut is white space, which ends a text that is stripped there only if all of its rest is white space.
    const bool is_charsmap = step.kind == Kind::precompiled;
    if (is_charsmap && last == '\r') return false;  // with a line feed it is one grapheme
    const bool needs_original = is_normal_form(step) || is_charsmap || step.kind == Kind::strip_right;
    if (step.kind == Kind::replace_matches || (needs_original && !are_original)) return false;
    if (step.kind == Kind::replace && count_characters(step.text) > 1) return false;
    if (!is_normal_form(step) && step.kind != Kind::strip_right) are_original = false;
  }
  return true;
}

}  // namespace trireme::data
