#pragma once

#include <utf8proc.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

inline constexpr char32_t unicode_code_points = 0x110000;

/// Unicode's general category.
utf8proc_category_t category_of(char32_t c);

/// Unicode's simple lower-case mapping.
char32_t lower_case(char32_t c);

/// Appends `c` as UTF-8.
void append_utf8(char32_t c, std::string& text);

/// Returns true only if `text` is in NFC; quick for text without combining marks.
bool is_surely_composed(std::string_view text);
/// Returns `text` in NFC. Bytes that are not UTF-8 are kept.
std::string composed(std::string_view text);

/// Python's str.lower: full lower case, in which a capital sigma at the end of a word becomes a final one. `text` is
/// UTF-8.
std::string lower_case(std::string_view text);

/// Python's str.capitalize: the first character in title case, the others in lower case. A first character whose title
/// case is several characters is kept. `text` is UTF-8.
std::string capitalized(std::string_view text);

/// Returns whether the character is a letter or a number: with the underscore, those that Python's \w matches.
bool is_alphanumeric(char32_t c);

/// `word` in lower case and without accents, as in BERT: `lower_case`, canonical decomposition (NFD), nonspacing marks
/// removed. `word` is UTF-8 without white space.
std::string lower_case_without_accents(std::string_view word);

}  // namespace trireme::data
