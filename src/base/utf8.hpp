#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace trireme {

/// One character of UTF-8 text; `size_bytes` is 0 if the bytes are not UTF-8.
struct Utf8Character {
  char32_t code_point;
  int size_bytes;
};

/// Returns whether `byte` continues a character: any but the first of its bytes.
constexpr bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// The character that starts at `text`, which is before `end`. Overlong forms, surrogates, values beyond U+10FFFF and
/// characters cut off by `end` are not UTF-8 (Unicode 15, table 3-7).
inline Utf8Character decode_utf8(const char* text, const char* end) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const int size = lead >= 0xC2 && lead <= 0xDF   ? 2
                   : lead >= 0xE0 && lead <= 0xEF ? 3
                   : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                  : 0;
  if (size == 0 || end - text < size) return {0, 0};
  char32_t code_point = lead & (0x7Fu >> size);
  for (int i = 1; i < size; ++i) {
    if (!continues_character(text[i])) return {0, 0};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = (size == 3 && code_point < 0x800) || (size == 4 && code_point < 0x10000);
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (overlong || surrogate || code_point > 0x10FFFF) return {0, 0};
  return {code_point, size};
}

/// Calls `take(Utf8Character, std::string_view bytes)` for each character. A byte that is not UTF-8 comes alone, with a
/// character of size 0.
template <class Take>
void for_each_character(std::string_view text, const Take& take) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const Utf8Character c = decode_utf8(at, end);
    const auto size = static_cast<std::size_t>(std::max(c.size_bytes, 1));
    take(c, std::string_view(at, size));
    at += size;
  }
}

/// Bytes of ASCII at the front of `text`.
inline std::size_t ascii_size(std::string_view text) {
  constexpr std::size_t step = sizeof(std::uint64_t);
  std::size_t size = 0;
  for (std::uint64_t bytes = 0; text.size() - size >= step; size += step) {
    std::memcpy(&bytes, text.data() + size, step);
    if ((bytes & 0x8080808080808080u) != 0) break;
  }
  while (size < text.size() && static_cast<unsigned char>(text[size]) < 0x80) ++size;
  return size;
}

/// Offset of the first byte that is not part of a UTF-8 character, `text.size()` if none.
inline std::size_t find_invalid_utf8(std::string_view text) {
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  while (at != end) {
    at += ascii_size({at, end});
    if (at == end) break;
    const int size_bytes = decode_utf8(at, end).size_bytes;
    if (size_bytes == 0) break;
    at += size_bytes;
  }
  return static_cast<std::size_t>(at - text.data());
}

inline bool is_utf8(std::string_view text) { return find_invalid_utf8(text) == text.size(); }

inline std::int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return !continues_character(c); });
}

/// First byte of the character that contains byte `at`; not before byte `min`.
inline std::size_t character_begin(std::string_view text, std::size_t at, std::size_t min = 0) {
  const std::size_t first = std::max(min, at - std::min<std::size_t>(at, 3));
  while (at > first && continues_character(text[at])) --at;
  return at;
}

/// The byte `count` characters after the one that begins at `at`, or the end of the text.
inline std::size_t skip_characters(std::string_view text, std::size_t at, std::int64_t count) {
  for (; count > 0 && at < text.size(); --count) {
    do {
      ++at;
    } while (at < text.size() && continues_character(text[at]));
  }
  return at;
}

}  // namespace trireme
