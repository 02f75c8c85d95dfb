#include "src/data/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

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
  const auto after = std::find_if_not(word.begin() + static_cast<std::ptrdiff_t>(at) + 1, word.end(), ignorable);
  return before != word.rend() && is_cased(*before) && (after == word.end() || !is_cased(*after));
}

/// Bytes 0x80 to 0x9F of windows-1252; 0 if it has no character.
constexpr std::array<char32_t, 32> windows_1252 = {0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                                   0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017D, 0,
                                                   0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                                   0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

/// The byte from 0x80 on that `c` stands for in windows-1252 or Latin-1, or 0.
unsigned char byte_of(char32_t c) {
  if (c >= 0x80 && c <= 0xFF) return static_cast<unsigned char>(c);
  if (c < 0x152 || c > 0x2122) return 0;
  const auto* const found = std::ranges::find(windows_1252, c);
  return found == windows_1252.end() ? 0 : static_cast<unsigned char>(0x80 + (found - windows_1252.begin()));
}

/// Returns whether the character follows words in ordinary text.
bool follows_words(char32_t c) {
  constexpr std::u32string_view signs =
      U"\u00A0\u00A9\u00AA\u00AB\u00AE\u00B0\u00B2\u00B3\u00B4\u00B7\u00B9\u00BA\u00BB"
      U"\u2013\u2014\u2018\u2019\u201A\u201C\u201D\u201E\u2020\u2021\u2022\u2026"
      U"\u2039\u203A\u2122";
  return signs.find(c) != signs.npos;
}

/// Returns whether a character that stands for a byte is a lower-case letter.
bool is_lower_case_letter(char32_t c) {
  return (c >= 0xDF && c <= 0xFF && c != 0xF7) || c == 0x153 || c == 0x161 || c == 0x17E || c == 0x192;
}

bool is_removed(char32_t c) {
  if (c < 0x20) return c != '\t' && c != '\n' && c != '\f' && c != '\r';
  return (c >= 0x7F && c <= 0x9F) || (c >= 0x206A && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x80 && !is_removed(static_cast<unsigned char>(c)); });
}

/// Successive characters that stand for bytes.
struct Sequence {
  std::string_view text;
  std::string bytes;
  std::u32string characters;

  bool is_utf8() const { return trireme::is_utf8(bytes); }
  /// Returns whether ordinary text may also contain the sequence.
  bool is_ordinary() const {
    if (characters[0] == U'\u00C2' || characters[0] == U'\u00C3') return false;
    const bool is_end_of_word = characters.size() == 2 && follows_words(characters[1]);
    return is_end_of_word || std::ranges::all_of(characters, is_lower_case_letter);
  }
};

/// Calls `take(sequence)` for every longest sequence of characters that stand for bytes, `pass(bytes)` for the text
/// between.
template <class TakeSequence, class Pass>
void for_each_sequence(std::string_view text, const TakeSequence& take, const Pass& pass) {
  Sequence sequence;
  for_each_character(text, [&](Utf8Character c, std::string_view spelling) {
    const unsigned char byte = c.size_bytes > 1 ? byte_of(c.code_point) : 0;
    if (byte != 0) {
      sequence.text = sequence.bytes.empty()
                          ? spelling
                          : std::string_view(sequence.text.data(), sequence.text.size() + spelling.size());
      sequence.bytes += static_cast<char>(byte);
      sequence.characters += c.code_point;
      return;
    }
    if (!sequence.bytes.empty()) {
      take(sequence);
      sequence = {};
    }
    pass(spelling);
  });
  if (!sequence.bytes.empty()) take(sequence);
}

/// One pass of the first step.
std::string read_again(std::string_view text) {
  std::int64_t misread = 0, ordinary = 0, other = 0;
  const auto count = [&](const Sequence& sequence) {
    ++(!sequence.is_utf8() ? other : sequence.is_ordinary() ? ordinary : misread);
  };
  for_each_sequence(text, count, [](std::string_view) {});
  std::string result;
  if (misread + ordinary == 0) return result = text;
  const auto take = [&](const Sequence& sequence) {
    const bool is_misread = sequence.is_utf8() && (!sequence.is_ordinary() || misread > other);
    result += is_misread ? std::string_view(sequence.bytes) : sequence.text;
  };
  for_each_sequence(text, take, [&](std::string_view bytes) { result += bytes; });
  return result;
}

std::string without_controls(std::string_view text) {
  std::string result;
  for_each_character(text, [&](Utf8Character c, std::string_view spelling) {
    const bool is_c1 = c.code_point >= 0x80 && c.code_point <= 0x9F;
    if (c.size_bytes > 0 && is_c1 && windows_1252[c.code_point - 0x80] != 0) {
      append_utf8(windows_1252[c.code_point - 0x80], result);
    } else if (c.size_bytes == 0 || !is_removed(c.code_point)) {
      result += spelling;
    }
  });
  return result;
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

std::string normal_form(std::string_view text, NormalForm form) {
  constexpr std::array<int, 4> options{UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                       UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  const auto option = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options[static_cast<std::size_t>(form)]);
  std::string result;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, find_invalid_utf8(text));
    utf8proc_uint8_t* out = nullptr;
    const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                   static_cast<utf8proc_ssize_t>(valid.size()), &out, option);
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

std::string characters_in_lower_case(std::string_view text) {
  std::string lowered;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    if (c.size_bytes == 0) {
      lowered += bytes;
    } else {
      append_utf8(lower_case(c.code_point), lowered);
      if (c.code_point == capital_dotted_i) append_utf8(combining_dot, lowered);
    }
  });
  return lowered;
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

bool is_word_character(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  const bool is_letter_mark_or_number = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL;
  // Circled letters are symbols with the property Other_Alphabetic.
  const bool is_circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                          (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return is_letter_mark_or_number || category == UTF8PROC_CATEGORY_PC || is_circled || c == 0x200C || c == 0x200D;
}

std::string without_marks(std::string_view text) {
  std::string result;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    const utf8proc_category_t category = c.size_bytes == 0 ? UTF8PROC_CATEGORY_CN : category_of(c.code_point);
    const bool is_mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    if (!is_mark) result += bytes;
  });
  return result;
}

bool is_letter(char32_t c) {
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_alphanumeric(char32_t c) {
  const auto category = category_of(c);
  return is_letter(c) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
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

std::string repaired(std::string_view text) {
  std::string result(text);
  if (is_plain(text)) return result;
  for (std::string before; before.size() != result.size();) {  // every repair shortens the text
    before = std::exchange(result, read_again(result));
  }
  result = without_controls(result);
  return is_surely_composed(result) ? result : composed(result);
}

}  // namespace trireme::data
