#include "src/data/text/unicode_repair.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data {
namespace {

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
