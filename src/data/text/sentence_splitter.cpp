#include "src/data/text/sentence_splitter.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

/// Abbreviations before names, numbers or examples, without those that often end a sentence (etc. Inc. Jr.).
constexpr std::array<std::string_view, 62> abbreviations{
    "adm",  "al",  "apr",  "art", "aug", "brig", "capt",   "cf",   "ch",  "cmdr", "col", "cpl", "dec",
    "dept", "dr",  "ed",   "eds", "eq",  "eqs",  "esp",    "feb",  "fig", "figs", "gen", "gov", "hon",
    "jan",  "jul", "jun",  "lt",  "maj", "mar",  "messrs", "mlle", "mme", "mr",   "mrs", "ms",  "mt",
    "no",   "nos", "nov",  "oct", "p",   "pp",   "pres",   "prof", "rep", "reps", "rev", "sec", "sen",
    "sens", "sep", "sept", "sgt", "st",  "supt", "univ",   "viz",  "vol", "vs"};

/// Closing marks after a stop, at most; a bound, since every one of a long run looks for the stop.
constexpr int max_closing_marks = 64;

struct Character {
  char32_t code_point;
  std::size_t begin, end;
};

/// The character that begins at byte `at`; a byte that is not UTF-8 is U+FFFD.
Character character_at(std::string_view text, std::size_t at) {
  const Utf8Character decoded = decode_utf8(text.data() + at, text.data() + text.size());
  if (decoded.size_bytes == 0) return {0xFFFD, at, at + 1};
  return {decoded.code_point, at, at + static_cast<std::size_t>(decoded.size_bytes)};
}

/// The character that ends before byte `at`, which is not 0.
Character character_before(std::string_view text, std::size_t at) {
  const Character found = character_at(text, character_begin(text, at - 1));
  return found.end == at ? found : Character{0xFFFD, at - 1, at};
}

bool is_wide_stop(char32_t c) { return c == 0x3002 || c == 0xFF01 || c == 0xFF0E || c == 0xFF1F || c == 0xFF61; }

bool is_closing(char32_t c) {
  const auto category = category_of(c);
  return c == '"' || c == '\'' || category == UTF8PROC_CATEGORY_PE || category == UTF8PROC_CATEGORY_PF;
}

bool is_opening(char32_t c) {
  const auto category = category_of(c);
  return c == '"' || c == '\'' || category == UTF8PROC_CATEGORY_PS || category == UTF8PROC_CATEGORY_PI ||
         category == UTF8PROC_CATEGORY_PF;
}

bool is_letter_or_mark(char32_t c) {
  const auto category = category_of(c);
  return is_letter(c) || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC;
}

/// Returns whether the '.' at byte `at` belongs to the word before it rather than to the sentence.
bool is_abbreviation(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  std::size_t letters = 0, points = 0, digits = 0;
  bool capital = false;
  while (begin > 0 && at - begin < 64) {
    const Character c = character_before(text, begin);
    if (c.code_point == '.') {
      ++points;
    } else if (c.code_point >= '0' && c.code_point <= '9') {
      ++digits;
    } else if (is_letter_or_mark(c.code_point)) {
      ++letters;
      capital = category_of(c.code_point) == UTF8PROC_CATEGORY_LU;
    } else {
      break;
    }
    begin = c.begin;
  }
  const std::string_view word = text.substr(begin, at - begin);
  if (letters == 0 && points == 0) {  // a number that begins a line
    std::size_t line = begin;
    while (line > 0 && (text[line - 1] == ' ' || text[line - 1] == '\t')) --line;
    return digits > 0 && (line == 0 || text[line - 1] == '\n');
  }
  if (digits > 0) return false;
  if (points > 0) return letters == points + 1 && word[0] != '.';  // U.S, e.g, a.m
  if (letters == 1) return capital;
  std::string lower(word);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::ranges::find(abbreviations, lower) != abbreviations.end();
}

}  // namespace

bool is_sentence_mark(char32_t c) {
  constexpr std::u32string_view stops =
      U".!?\u2026\u0589\u061D\u061E\u061F\u06D4\u0964\u0965\u104A\u104B\u1362\u1367\u1368\u17D4\u17D5\u1803\u1809"
      U"\u203C\u203D\u2047\u2048\u2049\uA4FF";
  return stops.find(c) != stops.npos || is_wide_stop(c);
}

bool is_sentence_end(std::string_view text, std::size_t at) {
  // Text before: a stop, perhaps followed by closing marks.
  const Character last = character_before(text, at);
  if (is_white_space(last.code_point)) return false;
  Character stop = last;
  for (int marks = 0; marks < max_closing_marks && is_closing(stop.code_point) && stop.begin > 0; ++marks) {
    stop = character_before(text, stop.begin);
  }
  const Character next = character_at(text, at);
  const bool space_follows = is_white_space(next.code_point);
  if (!space_follows) {
    return is_wide_stop(stop.code_point) && !is_sentence_mark(next.code_point) && !is_closing(next.code_point);
  }

  // Text after: blank lines, and the first letter.
  std::size_t after = at;
  int lines = 0;
  while (after < text.size()) {
    const Character c = character_at(text, after);
    if (!is_white_space(c.code_point)) break;
    lines += c.code_point == 0x2029 ? 2 : c.code_point == '\n' ? 1 : 0;  // a paragraph separator is a blank line
    after = c.end;
  }
  if (after == text.size()) return false;
  if (lines >= 2) return true;
  if (!is_sentence_mark(stop.code_point)) return false;
  Character first = character_at(text, after);
  while (is_opening(first.code_point) && first.end < text.size()) first = character_at(text, first.end);
  if (category_of(first.code_point) == UTF8PROC_CATEGORY_LL) return false;
  const bool single = stop.begin == 0 || !is_sentence_mark(character_before(text, stop.begin).code_point);
  return stop.code_point != '.' || !single || !is_abbreviation(text, stop.begin);
}

std::vector<std::size_t> sentence_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 1; at < text.size(); ++at) {
    // Cuts lie before white space, or after a wide stop or its closing marks: never within a character or a word.
    const auto here = static_cast<unsigned char>(text[at]), before = static_cast<unsigned char>(text[at - 1]);
    if (continues_character(text[at])) continue;
    if (here < 0x80 && before < 0x80 && !is_ascii_space(text[at])) continue;
    if (is_sentence_end(text, at)) ends.push_back(at);
  }
  if (!text.empty()) ends.push_back(text.size());
  return ends;
}

}  // namespace trireme::data
