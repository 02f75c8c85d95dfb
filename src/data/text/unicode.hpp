#pragma once

#include <utf8proc.h>

#include <string>
#include <string_view>

namespace trireme::data {

inline constexpr char32_t unicode_code_points = 0x110000;

/// Unicode's general category.
utf8proc_category_t category_of(char32_t c);

/// Unicode's simple lower-case mapping.
char32_t lower_case(char32_t c);

void append_utf8(char32_t c, std::string& text);

/// Returns true only if `text` is in NFC; quick for text without combining marks.
bool is_surely_composed(std::string_view text);
/// Unicode's normal forms: composed or decomposed, canonical or with compatibility mappings ("k").
enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// Returns `text` in a normal form. Bytes that are not UTF-8 are kept.
std::string normal_form(std::string_view text, NormalForm form);
/// Returns `text` in NFC.
inline std::string composed(std::string_view text) { return normal_form(text, NormalForm::nfc); }
/// Returns `text` with each character in its full lower case, whatever its neighbours. Bytes that are not UTF-8 are
/// kept.
std::string characters_in_lower_case(std::string_view text);

/// Python's str.lower: full lower case, in which a capital sigma at the end of a word becomes a final one. `text` is
/// UTF-8.
std::string lower_case(std::string_view text);

/// Python's str.capitalize: the first character in title case, the others in lower case. A first character whose title
/// case is several characters is kept. `text` is UTF-8.
std::string capitalized(std::string_view text);

/// Returns whether the character is a letter (L): Python's str.isalpha.
bool is_letter(char32_t c);

/// Returns whether the character is a letter or a number.
bool is_alphanumeric(char32_t c);
/// Returns whether Python's \w matches the character.
inline bool is_python_word_character(char32_t c) { return c == '_' || is_alphanumeric(c); }

/// Returns whether the character matches \w in Unicode's Technical Standard 18: alphabetic ones, marks, decimal digits,
/// connecting punctuation and the two joiners.
bool is_word_character(char32_t c);

/// Returns `text` without marks (M). Bytes that are not UTF-8 are kept.
std::string without_marks(std::string_view text);

/// `word` in lower case and without accents, as in BERT: `lower_case`, canonical decomposition (NFD), nonspacing marks
/// removed. `word` is UTF-8 without white space.
std::string lower_case_without_accents(std::string_view word);

/// Repairs the damage of wrong conversions to text, in this order, and changes nothing else:
///
/// 1. UTF-8 that was read as windows-1252 or Latin-1 ("cafÃ©", "donâ€™t"). Each longest run of characters for bytes
///    from 0x80 on in windows-1252 is converted to those bytes. The five bytes that windows-1252 lacks, and the C1
///    controls, stand for themselves. Where the bytes are UTF-8, they replace the run. This is repeated until nothing
///    changes. Some runs occur in ordinary text, too: lower-case letters alone, as in Northern Sami "ášši"; a letter
///    and then a quotation mark, dash or another sign that follows words („Spaß“, "CAFÉ™"). Neither begins with Â or Ã.
///    Such a run is replaced only if most of the text's other runs are UTF-8.
/// 2. C1 controls, U+0080 to U+009F, become the windows-1252 characters of these bytes, if any.
/// 3. Controls are removed: U+0000 to U+001F except tab, line feed, form feed and carriage return; U+007F to U+009F;
///    U+206A to U+206F; U+FEFF; U+FFF9 to U+FFFC.
/// 4. Letters and marks are joined where Unicode has one character for them (NFC).
///
/// `text` is UTF-8; other bytes are kept.
std::string repaired(std::string_view text);

}  // namespace trireme::data
