#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::data {

/// One character of UTF-8 text; `size_bytes` is 0 if the bytes are not UTF-8.
struct Utf8Character {
  char32_t code_point;
  int size_bytes;
};

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
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = (size == 3 && code_point < 0x800) || (size == 4 && code_point < 0x10000);
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (overlong || surrogate || code_point > 0x10FFFF) return {0, 0};
  return {code_point, size};
}

/// Offset of the first byte that is not part of a UTF-8 character, `text.size()` if none.
inline std::size_t find_invalid_utf8(std::string_view text) {
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  while (at != end) {
    const int size_bytes = decode_utf8(at, end).size_bytes;
    if (size_bytes == 0) break;
    at += size_bytes;
  }
  return static_cast<std::size_t>(at - text.data());
}

}  // namespace trireme::data
