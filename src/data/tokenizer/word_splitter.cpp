#include "src/data/tokenizer/word_splitter.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/byte_block.hpp"

namespace trireme::data {
namespace {

// Kinds of characters in blocks of text: other than these two, a letter, or one that `add_letters` leaves.
constexpr std::uint8_t a_letter = 1, left_over = 2;
constexpr std::uint8_t in_capitals = 1, in_small = 2, both_cases = 3;

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

/// Size of 's, 't, 're, 've, 'm, 'll or 'd at `text`, 0 if none.
int contraction_size(const char* text, const char* end, bool ignore_case) {
  const auto letter = [&](int i) -> char {
    if (end - text <= i) return 0;
    return ignore_case && text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + ('a' - 'A')) : text[i];
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(2);
  if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) return 3;
  // Without case U+017F, the long s, is an s.
  return ignore_case && first == '\xC5' && second == '\xBF' ? 3 : 0;
}

}  // namespace

WordSplitter::WordSplitter(WordPattern pattern) : pattern_(pattern), classes_(unicode_code_points, Class::other) {
  for (char32_t c = 0; c < unicode_code_points; ++c) {
    const utf8proc_category_t category = category_of(c);
    if (is_white_space(c)) {
      classes_[c] = Class::space;
    } else if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) {
      classes_[c] = Class::letter;
    } else if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) {
      classes_[c] = Class::number;
    }
  }
  std::copy_n(classes_.begin(), ascii_.size(), ascii_.begin());
  if (pattern_ == WordPattern::gpt2) {
    kinds_of_two_.resize(0x800);
    kinds_of_three_.resize(0x10000, left_over);  // those of two bytes and surrogates are not UTF-8 in three bytes
    for (char32_t c = 0; c < 0x10000; ++c) {
      const Class own = classes_[c];
      const std::uint8_t kind = own == Class::letter ? a_letter : own == Class::other ? 0 : left_over;
      if (c < 0x800) kinds_of_two_[c] = kind;
      if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) kinds_of_three_[c] = kind;
    }
  }
  if (!has_cases()) return;
  cases_.resize(unicode_code_points);
  for (char32_t c = 0; c < unicode_code_points; ++c) {
    const utf8proc_category_t category = category_of(c);
    const bool is_mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    const bool is_both = is_mark || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
    const bool is_capital = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
    cases_[c] = is_both ? both_cases : is_capital ? in_capitals : category == UTF8PROC_CATEGORY_LL ? in_small : 0;
  }
}

inline WordSplitter::Character WordSplitter::character(const char* text, const char* end) const {
  const auto byte = static_cast<unsigned char>(*text);
  if (byte < 0x80) return {ascii_[byte], 1};
  const Utf8Character decoded = decode_utf8(text, end);
  if (decoded.size_bytes == 0) return {Class::other, 1};
  return {classes_[decoded.code_point], decoded.size_bytes};
}

/// End of the characters of class `wanted` from `text` on.
inline const char* WordSplitter::class_end(const char* text, const char* end, Class wanted) const {
  while (text != end) {
    const Character next = character(text, end);
    if (next.character_class != wanted) break;
    text += next.size_bytes;
  }
  return text;
}

/// `\s+(?!\S)|\s+` at white space: excludes the last of several characters if something else follows.
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
  return pattern_ == WordPattern::gpt2 ? gpt2_word_end(text, end)
         : has_cases()                 ? tekken_word_end(text, end)
                                       : llama_word_end(text, end);
}

const char* WordSplitter::cut(const char* text, const char* end, WordBatch& words) const {
  do {
    std::uint64_t cuts = 0;
    if (pattern_ == WordPattern::gpt2 && end - text > ByteBlock::size) cuts = gpt2_cuts(text, end);
    if (cuts != 0) {
      text = words.add(text, (cuts ^ std::bit_floor(cuts)) | 1, cuts);
    } else {
      const char* const next = word_end(text, end);
      words.add(text, next);
      text = next;
    }
  } while (text != end && words.has_room());
  return text;
}

/// Sets the classes of the characters that begin at the given bytes of a block, which are not ASCII.
inline void WordSplitter::add_characters(const char* text, const char* end, std::uint64_t bytes,
                                         BlockClasses& classes) const {
  while (bytes != 0) {
    const int first = std::countr_zero(bytes);
    const Character c = character(text + first, end);
    const std::uint64_t own = ((std::uint64_t{1} << c.size_bytes) - 1) << first;
    const auto bits_of = [&](Class wanted) { return c.character_class == wanted ? own : 0; };
    classes.letters |= bits_of(Class::letter);
    classes.numbers |= bits_of(Class::number);
    classes.spaces |= bits_of(Class::space);
    classes.inside |= own & own << 1;
    bytes &= ~own;
  }
}

/// Sets the classes of letters and signs of two or three bytes that end in a block, of which `others` are not ASCII.
/// Returns the bytes of all other characters.
inline std::uint64_t WordSplitter::add_letters(const char* text, std::uint64_t others, BlockClasses& classes) const {
  constexpr std::uint64_t last = std::uint64_t{1} << (ByteBlock::size - 1);
  const ByteBlock block(text);
  const std::uint64_t two = block.range(0xC2, 0xDF) & ~last, three = block.range(0xE0, 0xEF) & ~(last | last >> 1);
  if (((two << 1 | three << 1 | three << 2) & ~block.range(0x80, 0xBF)) != 0) return others;
  std::uint64_t letters = 0, left = 0;  // first bytes
  const auto add = [&](std::uint64_t first, std::uint8_t kind) {
    letters |= first & -static_cast<std::uint64_t>(kind & a_letter);
    left |= first & -static_cast<std::uint64_t>(kind / left_over);
  };
  for (std::uint64_t rest = two; rest != 0; rest &= rest - 1) {
    std::uint16_t bytes = 0;
    std::memcpy(&bytes, text + std::countr_zero(rest), sizeof(bytes));
    add(rest & -rest, kinds_of_two_[(bytes & 0x1Fu) << 6 | (bytes >> 8 & 0x3Fu)]);
  }
  for (std::uint64_t rest = three; rest != 0; rest &= rest - 1) {
    std::uint32_t bytes = 0;  // and the one after them
    std::memcpy(&bytes, text + std::countr_zero(rest), sizeof(bytes));
    add(rest & -rest, kinds_of_three_[(bytes & 0xFu) << 12 | (bytes >> 2 & 0xFC0u) | (bytes >> 16 & 0x3Fu)]);
  }
  const std::uint64_t inside = (two & ~left) << 1 | (three & ~left) << 1 | (three & ~left) << 2;
  classes.letters |= letters | letters << 1 | (letters & three) << 2;
  classes.inside |= inside;
  return others & ~((two | three) & ~left) & ~inside;
}

/// Returns the classes of a block with its characters that are not ASCII. Apart, since it slows blocks of ASCII inline.
[[gnu::noinline]] WordSplitter::BlockClasses WordSplitter::with_others(const char* text, const char* end,
                                                                       std::uint64_t others,
                                                                       BlockClasses classes) const {
  constexpr int few = 8;  // bytes that are faster one by one
  const std::uint64_t left = std::popcount(others) <= few ? others : add_letters(text, others, classes);
  if (left != 0) add_characters(text, end, left, classes);
  return classes;
}

/// Returns the bits of those of the first 61 bytes of a block after its first, at which a word begins. The first byte
/// begins a word. Behind these bytes the last character of white space may continue.
inline std::uint64_t WordSplitter::gpt2_cuts(const char* text, const char* end) const {
  constexpr int last_cut = ByteBlock::size - 4;
  const ByteBlock block(text);
  const std::uint64_t blanks = block.equal(' ');
  BlockClasses classes{
      .letters = block.letters(), .numbers = block.range('0', '9'), .spaces = blanks | block.range('\t', '\r')};
  if (const std::uint64_t others = block.others(); others != 0) classes = with_others(text, end, others, classes);
  const auto [letters, numbers, spaces, inside] = classes;
  const std::uint64_t signs = ~(letters | numbers | spaces);
  const std::uint64_t same = (letters & letters << 1) | (numbers & numbers << 1) | (signs & signs << 1);
  // The last of several spaces leaves the others if something follows, and what follows leaves it unless it is a blank.
  std::uint64_t last_spaces = spaces & ~(spaces >> 1);
  for (int i = 0; i < 2; ++i) last_spaces = (last_spaces & ~inside) | (last_spaces & inside) >> 1;
  std::uint64_t cuts =
      ((~spaces & ~same & ~(blanks << 1)) | (spaces & ~(spaces << 1)) | last_spaces) & ~inside & ~std::uint64_t{1};
  if (const std::uint64_t marks = block.equal('\'') & (cuts | 1); marks != 0) {
    const std::uint64_t l = block.equal('l');
    const std::uint64_t of_one = block.equal('s') | block.equal('t') | block.equal('m') | block.equal('d');
    const std::uint64_t of_two = ((block.equal('r') | block.equal('v')) & block.equal('e') >> 1) | (l & l >> 1);
    const std::uint64_t with_one = marks & of_one >> 1, with_two = marks & of_two >> 1;
    cuts = (cuts & ~((with_one | with_two) << 1)) | with_one << 2 | with_two << 3;
  }
  return cuts & ((std::uint64_t{2} << last_cut) - 1);
}

inline const char* WordSplitter::gpt2_word_end(const char* text, const char* end) const {
  if (*text == '\'') {
    if (const int size = contraction_size(text, end, false); size > 0) return text + size;
  }
  const char* start = text;
  if (*text == ' ' && end - text > 1) ++start;
  const Character first = character(start, end);
  if (first.character_class == Class::space) return space_end(text, end);
  return class_end(start + first.size_bytes, end, first.character_class);
}

/// End of a number after its first digit: up to three digits, or one.
inline const char* WordSplitter::numbers_end(const char* text, const char* end) const {
  const bool takes_three = pattern_ == WordPattern::llama3 || pattern_ == WordPattern::o200k;
  for (int digits = 1; takes_three && digits < 3 && text != end; ++digits) {
    const Character next = character(text, end);
    if (next.character_class != Class::number) break;
    text += next.size_bytes;
  }
  return text;
}

/// End of a word's contraction, which o200k does not cut off.
inline const char* WordSplitter::contraction_end(const char* text, const char* end) const {
  const bool may_have_one = pattern_ == WordPattern::o200k && text != end && *text == '\'';
  return may_have_one ? text + contraction_size(text, end, true) : text;
}

const char* WordSplitter::llama_word_end(const char* text, const char* end) const {
  if (*text == '\'') {
    if (const int size = contraction_size(text, end, true); size > 0) return text + size;
  }
  const Character first = character(text, end);
  const char* const second = text + first.size_bytes;
  if (first.character_class == Class::letter) return class_end(second, end, Class::letter);
  if (first.character_class == Class::number) return numbers_end(second, end);
  // One character that is neither letter, number nor the end of a line joins the letters after it.
  if (!is_line_end(*text) && second != end && character(second, end).character_class == Class::letter) {
    return class_end(second, end, Class::letter);
  }
  return signs_end(text, end, first);
}

/// End of signs with the ends of lines after them, or of white space, at `text`, which begins with `first`.
const char* WordSplitter::signs_end(const char* text, const char* end, Character first) const {
  const char* const second = text + first.size_bytes;
  const bool space_first = *text == ' ' && second != end && character(second, end).character_class == Class::other;
  if (first.character_class == Class::other || space_first) {
    const char* at = class_end(second, end, Class::other);
    while (at != end && (is_line_end(*at) || (*at == '/' && has_cases()))) ++at;
    return at;
  }
  // White space: up to its last end of a line, if it has one.
  const char* const spaces_end = class_end(text, end, Class::space);
  for (const char* at = spaces_end; at != text; --at) {
    if (is_line_end(at[-1])) return at;
  }
  return space_end(text, end);
}

/// Sets of tekken and o200k that the character at `text` is in, and its size.
int WordSplitter::cases_of(const char* text, const char* end, int& size_bytes) const {
  const Utf8Character decoded = decode_utf8(text, end);
  size_bytes = std::max(decoded.size_bytes, 1);
  return decoded.size_bytes == 0 ? 0 : cases_[decoded.code_point];
}

const char* WordSplitter::tekken_word_end(const char* text, const char* end) const {
  const Character first = character(text, end);
  const bool may_join =
      first.character_class != Class::letter && first.character_class != Class::number && !is_line_end(*text);
  const char* const starts[] = {text + (may_join ? first.size_bytes : 0), text};
  const char* capitals_ends[2];
  for (int i = may_join ? 0 : 1; i < 2; ++i) {  // U*L+, with the character before it, else without
    const char* at = starts[i];
    const char* after_both = nullptr;
    int cases = 0, size_bytes = 0;
    for (; at != end; at += size_bytes) {
      cases = cases_of(at, end, size_bytes);
      if ((cases & in_capitals) == 0) break;
      if (cases == both_cases) after_both = at + size_bytes;
    }
    capitals_ends[i] = at;
    if (at != end && cases == in_small) {
      while (at != end && (cases_of(at, end, size_bytes) & in_small) != 0) at += size_bytes;
      return contraction_end(at, end);
    }
    // Backtracking leaves the last character of U that is in L, too.
    if (after_both != nullptr) return contraction_end(after_both, end);
  }
  for (int i = may_join ? 0 : 1; i < 2; ++i) {  // U+: no L follows
    if (capitals_ends[i] != starts[i]) return contraction_end(capitals_ends[i], end);
  }
  if (first.character_class == Class::number) return numbers_end(text + first.size_bytes, end);
  return signs_end(text, end, first);
}

bool WordSplitter::can_cut(std::string_view text, std::size_t at) const {
  if (!is_word_cut(text, at)) return false;
  if (pattern_ == WordPattern::gpt2 || !is_line_end(text[at])) return true;
  // In the other patterns the end of a line belongs to signs before it.
  const char* const last = text.data() + character_begin(text, at - 1);
  const Class before = character(last, text.data() + at).character_class;
  return before == Class::letter || before == Class::number;
}

}  // namespace trireme::data
