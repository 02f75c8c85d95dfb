#include "src/data/tokenizer/character_words.hpp"

#include <algorithm>

#include "src/data/text/unicode.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {
namespace {

constexpr char32_t mark = 0x2581;
constexpr std::size_t ascii_pairs = std::size_t{1} << 14;  // their bits come first, and are theirs alone

}  // namespace

CharacterWords::CharacterWords(const BpeVocabulary& vocabulary)
    : filter_((ascii_pairs + (std::size_t{1} << filter_bits)) / 64) {
  const bool splits = vocabulary.characters->metaspace && vocabulary.characters->metaspace->split;
  cuts_ = !splits ? Cuts::by_merges : vocabulary.whole_words || vocabulary.unigram ? Cuts::by_marks : Cuts::by_both;
  if (vocabulary.unigram && !splits) cuts_ = Cuts::nowhere;
  for (const auto& [left, right] : vocabulary.merges) {
    const char* const left_end = left.data() + left.size();
    const char* const last = left.data() + character_begin(left, left.size() - 1);
    const std::size_t bit = filter_index(character(last, left_end).code_point,
                                         character(right.data(), right.data() + right.size()).code_point);
    filter_[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
}

/// A byte that is not UTF-8 is a character of its own, which no token has.
inline Utf8Character CharacterWords::character(const char* text, const char* end) {
  const Utf8Character c = decode_utf8(text, end);
  return c.size_bytes == 0 ? Utf8Character{unicode_code_points, 1} : c;
}

inline std::size_t CharacterWords::filter_index(char32_t left, char32_t right) {
  if ((left | right) < 0x80) return left << 7 | right;
  const std::uint64_t pair = std::uint64_t{left} << 32 | right;
  return ascii_pairs + ((pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> (64 - filter_bits));
}

inline bool CharacterWords::joins(char32_t left, char32_t right) const {
  if (cuts_ == Cuts::nowhere) return true;
  if (cuts_ != Cuts::by_merges && right == mark) return false;
  if (cuts_ == Cuts::by_marks) return true;
  const std::size_t bit = filter_index(left, right);
  return (filter_[bit / 64] >> bit % 64 & 1) != 0;
}

const char* CharacterWords::cut(const char* text, const char* end, WordBatch& words) const {
  do {
    const char* const next = word_end(text, end);
    words.add(text, next);
    text = next;
  } while (text != end && words.has_room());
  return text;
}

/// End of the word that starts at `text`, which is before `end`.
inline const char* CharacterWords::word_end(const char* text, const char* end) const {
  Utf8Character left = character(text, end);
  for (text += left.size_bytes; text != end;) {
    const Utf8Character right = character(text, end);
    if (!joins(left.code_point, right.code_point)) break;
    text += right.size_bytes;
    left = right;
  }
  return text;
}

bool CharacterWords::joins(std::string_view text, std::size_t at) const {
  const char* const end = text.data() + text.size();
  const char* const last = text.data() + character_begin(text, at - 1);
  return joins(character(last, text.data() + at).code_point, character(text.data() + at, end).code_point);
}

}  // namespace trireme::data
