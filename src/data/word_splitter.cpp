#include "src/data/word_splitter.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "src/data/utf8.hpp"

namespace trireme::data {
namespace {

constexpr char32_t kCodePoints = 0x110000;

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Size of 's, 't, 're, 've, 'm, 'll or 'd at `text`, 0 where there is none.
int contraction_size(const char* text, const char* end) {
  if (end - text < 2) return 0;
  const char first = text[1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (end - text < 3) return 0;
  const char second = text[2];
  return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l') ? 3 : 0;
}

}  // namespace

WordSplitter::WordSplitter() : classes_(kCodePoints, Class::other) {
  for (char32_t c = 0; c < kCodePoints; ++c) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (is_white_space(c)) {
      classes_[c] = Class::space;
    } else if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) {
      classes_[c] = Class::letter;
    } else if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) {
      classes_[c] = Class::number;
    }
  }
  std::copy_n(classes_.begin(), ascii_.size(), ascii_.begin());
}

inline WordSplitter::Character WordSplitter::character(const char* text, const char* end) const {
  const auto byte = static_cast<unsigned char>(*text);
  if (byte < 0x80) return {ascii_[byte], 1};
  const Utf8Character decoded = decode_utf8(text, end);
  if (decoded.size_bytes == 0) return {Class::other, 1};
  return {classes_[decoded.code_point], decoded.size_bytes};
}

/// End of the characters of class `wanted` from `text` on.
inline const char* WordSplitter::run_end(const char* text, const char* end, Class wanted) const {
  while (text != end) {
    const Character next = character(text, end);
    if (next.character_class != wanted) break;
    text += next.size_bytes;
  }
  return text;
}

/// `\s+(?!\S)|\s+` at white space: the last of several characters is left over where something else follows.
const char* WordSplitter::space_end(const char* text, const char* end) const {
  const char* last = text;
  const char* at = text;
  while (at != end) {
    const Character next = character(at, end);
    if (next.character_class != Class::space) break;
    last = at;
    at += next.size_bytes;
  }
  return at == end || last == text ? at : last;
}

const char* WordSplitter::word_end(const char* text, const char* end) const {
  if (*text == '\'') {
    if (const int size = contraction_size(text, end); size > 0) return text + size;
  }
  const char* start = text;
  if (*text == ' ' && end - text > 1) ++start;
  const Character first = character(start, end);
  if (first.character_class == Class::space) return space_end(text, end);
  return run_end(start + first.size_bytes, end, first.character_class);
}

}  // namespace trireme::data
