#include "src/data/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

bool is_cased(char32_t c) {
  const auto category = category_of(c);
  const auto code = static_cast<utf8proc_int32_t>(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT ||
         c == 0xAA || c == 0xBA || utf8proc_tolower(code) != code || utf8proc_toupper(code) != code;
}

/// Unicode's property Case_Ignorable.
bool is_case_ignorable(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      constexpr std::u32string_view others =
          U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
      return others.find(c) != others.npos;
  }
}

constexpr char32_t capital_sigma = 0x3A3, small_sigma = 0x3C3, final_sigma = 0x3C2;
// The only letter whose lower case is two characters.
constexpr char32_t capital_dotted_i = 0x130, combining_dot = 0x307;

/// The last sigma of a word: a cased character before it and none after it, skipping case-ignorable ones.
bool is_final_sigma(const std::u32string& word, std::size_t at) {
  const auto ignorable = [](char32_t c) { return is_case_ignorable(c); };
  const auto before = std::find_if_not(word.rend() - static_cast<std::ptrdiff_t>(at), word.rend(), ignorable);
  const auto behind = std::find_if_not(word.begin() + static_cast<std::ptrdiff_t>(at) + 1, word.end(), ignorable);
  return before != word.rend() && is_cased(*before) && (behind == word.end() || !is_cased(*behind));
}

}  // namespace

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

char32_t lower_case(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

void append_utf8(char32_t c, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

bool is_surely_composed(std::string_view text) {
  // No character below U+0300, whose first byte is 0xCC, combines with another.
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

std::string composed(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, find_invalid_utf8(text));
    utf8proc_uint8_t* out = nullptr;
    const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                   static_cast<utf8proc_ssize_t>(valid.size()), &out,
                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
    TRIREME_CHECK(size >= 0, EnvironmentError, "cannot normalise {} bytes of text: {}", valid.size(),
                  utf8proc_errmsg(size));
    result.append(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
    const std::size_t invalid = valid.size() < text.size() ? 1 : 0;
    result += text.substr(valid.size(), invalid);
    text.remove_prefix(valid.size() + invalid);
  }
  return result;
}

std::string lower_case(std::string_view text) {
  std::u32string characters;
  for_each_character(text, [&](Utf8Character c, std::string_view) { characters += c.code_point; });
  std::string lowered;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    const char32_t c = characters[i];
    append_utf8(c == capital_sigma ? (is_final_sigma(characters, i) ? final_sigma : small_sigma) : lower_case(c),
                lowered);
    if (c == capital_dotted_i) append_utf8(combining_dot, lowered);
  }
  return lowered;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const Utf8Character first = decode_utf8(text.data(), text.data() + text.size());
  std::string result;
  append_utf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(first.code_point))), result);
  // Lowers the entire text: a sigma's form depends on the preceding characters.
  return result + lower_case(text).substr(lower_case(text.substr(0, first.size_bytes)).size());
}

bool is_alphanumeric(char32_t c) {
  const auto category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

std::string lower_case_without_accents(std::string_view word) {
  const std::string lowered = lower_case(word);
  // No character decomposes into more than four.
  std::vector<utf8proc_int32_t> decomposed(4 * lowered.size());
  const auto count = utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(lowered.data()),
                                        static_cast<utf8proc_ssize_t>(lowered.size()), decomposed.data(),
                                        static_cast<utf8proc_ssize_t>(decomposed.size()),
                                        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
  TRIREME_CHECK(count >= 0 && static_cast<std::size_t>(count) <= decomposed.size(), EnvironmentError,
                "cannot decompose a word of {} bytes: {}", lowered.size(),
                count < 0 ? utf8proc_errmsg(count) : "it grows too long");
  std::string result;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto c = static_cast<char32_t>(decomposed[i]);
    if (category_of(c) != UTF8PROC_CATEGORY_MN) append_utf8(c, result);
  }
  return result;
}

}  // namespace trireme::data
