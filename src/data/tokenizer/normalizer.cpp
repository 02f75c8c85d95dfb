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
  return step.kind == Kind::nfc ? is_surely_composed(text) : is_normal_form(step) && is_ascii(text);
}

std::string applied(const NormalizerStep& step, std::string_view text) {
  switch (step.kind) {
    case Kind::lower_case:
      return characters_in_lower_case(text);
    case Kind::prepend:
      return step.text + std::string(text);
    case Kind::replace:
      return replaced(text, step.text, step.replacement);
    default:
      return normal_form(text, static_cast<NormalForm>(step.kind));
  }
}

}  // namespace

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {
  constexpr double max_growth = 64;
  constexpr std::size_t max_prepended_bytes = 1024;
  double growth = 1;
  for (const NormalizerStep& step : steps_) {
    TRIREME_CHECK(step.kind != Kind::replace || !step.text.empty(), DataError,
                  "a step of the normalizer replaces an empty text by '{}'", quotation_of(step.replacement));
    TRIREME_CHECK(step.kind != Kind::prepend || step.text.size() <= max_prepended_bytes, DataError,
                  "the normalizer prepends {} bytes; at most {} are possible", step.text.size(), max_prepended_bytes);
    if (step.kind != Kind::replace) continue;
    growth *= std::max(1.0, static_cast<double>(step.replacement.size()) / static_cast<double>(step.text.size()));
    TRIREME_CHECK(growth <= max_growth, DataError, "the normalizer may make a text more than {} times longer",
                  max_growth);
  }
}

std::string_view Normalizer::apply(std::string_view text, TextStart start, std::string& space) const {
  for (const NormalizerStep& step : steps_) {
    const bool is_unneeded =
        step.kind == Kind::prepend ? text.empty() || start == TextStart::inside : changes_nothing(step, text);
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
    return is_normal_form(step) || (step.kind == Kind::replace && count_characters(step.text) > 1);
  });
}

bool Normalizer::can_cut_after(char last) const {
  // A normal form looks at neighbours. ASCII and white space have none that they combine with, unless made by a step.
  bool are_original = static_cast<unsigned char>(last) < 0x80;
  for (const NormalizerStep& step : steps_) {
    if (is_normal_form(step) && !are_original) return false;
    if (step.kind == Kind::replace && count_characters(step.text) > 1) return false;
    if (!is_normal_form(step)) are_original = false;
  }
  return true;
}

}  // namespace trireme::data
