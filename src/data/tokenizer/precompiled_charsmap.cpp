#include "src/data/tokenizer/precompiled_charsmap.hpp"

#include <utf8proc.h>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

std::uint32_t number_at(std::string_view data, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) number |= std::uint32_t{static_cast<unsigned char>(data[at + i])} << 8 * i;
  return number;
}

// Parts of a unit of the double array.
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) == 1; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FF; }
std::size_t offset_of(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 0x200) >> 6); }

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view data) {
  const std::size_t bytes = data.size() < 4 ? 0 : number_at(data, 0);
  TRIREME_CHECK(data.size() >= 8 && bytes >= 4 && bytes % 4 == 0 && bytes <= data.size() - 4, DataError,
                "the normalizer's precompiled_charsmap of {} bytes is damaged", data.size());
  for (std::size_t at = 4; at < 4 + bytes; at += 4) units_.push_back(number_at(data, at));
  texts_ = data.substr(4 + bytes);
}

std::optional<std::string_view> PrecompiledCharsmap::replacement(std::string_view key) const {
  std::size_t at = offset_of(units_[0]);
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return {};
    const bool ends = has_value(units_[at]);
    at ^= offset_of(units_[at]);
    if (!ends || at >= units_.size()) continue;
    const std::uint32_t text = value_of(units_[at]);
    if (text > texts_.size()) return {};
    const std::string_view found = std::string_view(texts_).substr(text);
    return found.substr(0, found.find('\0'));
  }
  return {};
}

std::string PrecompiledCharsmap::apply(std::string_view text) const {
  constexpr std::size_t max_grapheme_bytes = 5;
  std::string result;
  const auto replaced = [&](std::string_view key) {
    const std::optional<std::string_view> found = replacement(key);
    if (!found) return false;
    TRIREME_CHECK(found->size() <= max_growth * key.size(), DataError,
                  "the normalizer's precompiled_charsmap replaces {} bytes by {}; at most {} are possible", key.size(),
                  found->size(), max_growth * key.size());
    result += *found;
    return true;
  };
  const auto add = [&](std::string_view grapheme) {
    if (grapheme.size() <= max_grapheme_bytes && replaced(grapheme)) return;
    for_each_character(grapheme, [&](Utf8Character, std::string_view character) {
      if (!replaced(character)) result += character;
    });
  };
  std::size_t begin = 0, at = 0;
  utf8proc_int32_t last = -1, state = 0;
  for_each_character(text, [&](Utf8Character c, std::string_view character) {
    // A byte that is not UTF-8 stands alone.
    const auto code = c.size_bytes == 0 ? -1 : static_cast<utf8proc_int32_t>(c.code_point);
    const bool breaks = code < 0 || last < 0 || utf8proc_grapheme_break_stateful(last, code, &state);
    if (code < 0 || last < 0) state = 0;
    if (breaks && at > begin) {
      add(text.substr(begin, at - begin));
      begin = at;
    }
    last = code;
    at += character.size();
  });
  if (at > begin) add(text.substr(begin));
  return result;
}

}  // namespace trireme::data
