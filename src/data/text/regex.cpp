#include "src/data/text/regex.hpp"

#include <oniguruma.h>

#include <array>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

const OnigUChar* units_of(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string regex_fault(int code, OnigErrorInfo* info = nullptr) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int size = onig_error_code_to_str(text.data(), code, info);
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(size)};
}

void start_oniguruma() {
  static const int result = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  TRIREME_CHECK(result == ONIG_NORMAL, EnvironmentError, "Oniguruma cannot start: {}", regex_fault(result));
}

/// Returns `text` with the control character SUBSTITUTE for each byte that is not UTF-8.
std::string with_substitutes(std::string_view text) {
  std::string result;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    result += c.size_bytes == 0 ? std::string_view("\x1A") : bytes;
  });
  return result;
}

}  // namespace

void Regex::Free::operator()(re_pattern_buffer* compiled) const { onig_free(compiled); }

Regex::Regex(std::string_view expression) : expression_(expression) {
  start_oniguruma();
  TRIREME_CHECK(is_utf8(expression), DataError, "the regular expression '{}' is not UTF-8", shortened(expression_));
  OnigRegex compiled = nullptr;
  OnigErrorInfo info{};
  const int result = onig_new(&compiled, units_of(expression), units_of(expression) + expression.size(),
                              ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
  TRIREME_CHECK(result == ONIG_NORMAL, DataError, "the regular expression '{}' is invalid: {}", shortened(expression_),
                regex_fault(result, &info));
  compiled_.reset(compiled);
}

std::vector<Regex::Match> Regex::matches(std::string_view text) const {
  if (!is_utf8(text)) return matches(with_substitutes(text));
  std::vector<Match> found;
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(onig_region_new(),
                                                                  [](OnigRegion* r) { onig_region_free(r, 1); });
  const OnigUChar *const begin = units_of(text), *const end = begin + text.size();
  for (std::size_t at = 0; at <= text.size();) {
    const int result = onig_search(compiled_.get(), begin, end, begin + at, end, region.get(), ONIG_OPTION_NONE);
    if (result == ONIG_MISMATCH) break;
    TRIREME_CHECK(result >= 0, DataError, "the search for '{}' in a text of {} bytes failed: {}",
                  shortened(expression_), text.size(), regex_fault(result));
    const Match match{static_cast<std::size_t>(region->beg[0]), static_cast<std::size_t>(region->end[0])};
    at = match.end;
    if (match.begin == match.end && !found.empty() && found.back().end == at) {
      at = at == text.size() ? at + 1 : skip_characters(text, at, 1);
      continue;
    }
    found.push_back(match);
  }
  return found;
}

std::string regex_of_text(std::string_view text) {
  std::string expression;
  for (const char c : text) {
    const bool is_sign =
        (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    if (is_sign) expression += '\\';
    expression += c;
  }
  return expression;
}

}  // namespace trireme::data
