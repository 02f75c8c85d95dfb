#include "src/data/template/text_functions.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "src/base/utf8.hpp"
#include "src/data/template/value.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data::jinja {
namespace {

std::size_t character_size(std::string_view text, std::size_t at) {
  return static_cast<std::size_t>(std::max(1, decode_utf8(text.data() + at, text.data() + text.size()).size_bytes));
}

/// Adds a character in upper or title case; the one that becomes two, German's sharp s, is written out.
void append_upper(char32_t c, bool is_title, std::string& text) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  if (c == 0xDF) {
    text += is_title ? "Ss" : "SS";
  } else {
    append_utf8(static_cast<char32_t>(is_title ? utf8proc_totitle(code) : utf8proc_toupper(code)), text);
  }
}

bool is_line_end(std::string_view text, std::size_t at, std::size_t& size) {
  const char32_t c = decode_utf8(text.data() + at, text.data() + text.size()).code_point;
  size = text.substr(at).starts_with("\r\n") ? 2 : character_size(text, at);
  return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::size_t space_bytes(std::string_view text, std::size_t at) {
  const std::size_t begin = at;
  while (at < text.size()) {
    const Utf8Character c = decode_utf8(text.data() + at, text.data() + text.size());
    if (c.size_bytes == 0 || !is_space(c.code_point)) break;
    at += static_cast<std::size_t>(c.size_bytes);
  }
  return at - begin;
}

std::string_view stripped(std::string_view text, Side side, const std::optional<std::string>& characters) {
  const auto is_stripped = [&](std::size_t at) {
    const std::size_t size = character_size(text, at);
    if (!characters) return space_bytes(text.substr(at, size), 0) > 0;
    return characters->find(text.substr(at, size)) != std::string::npos;
  };
  while (side != Side::right && !text.empty() && is_stripped(0)) text.remove_prefix(character_size(text, 0));
  while (side != Side::left && !text.empty()) {
    const std::size_t at = character_begin(text, text.size() - 1);
    if (!is_stripped(at)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::vector<std::string> split_text(std::string_view text, const std::optional<std::string>& separator,
                                    std::int64_t most, bool from_right) {
  std::vector<std::string> parts;
  const auto is_full = [&] { return most >= 0 && std::ssize(parts) >= most; };
  if (!separator) {
    const Side side = from_right ? Side::right : Side::left;
    for (text = stripped(text, side); !text.empty(); text = stripped(text, side)) {
      std::size_t size = 0;
      const auto is_at_space = [&](std::size_t at) {
        return space_bytes(text.substr(at, character_size(text, at)), 0) > 0;
      };
      if (is_full()) {
        parts.emplace_back(text);
        size = text.size();
      } else if (from_right) {
        std::size_t begin = text.size();
        while (begin > 0 && !is_at_space(character_begin(text, begin - 1))) begin = character_begin(text, begin - 1);
        size = text.size() - begin;
        parts.emplace_back(text.substr(begin));
      } else {
        while (size < text.size() && !is_at_space(size)) size += character_size(text, size);
        parts.emplace_back(text.substr(0, size));
      }
      text = from_right ? text.substr(0, text.size() - size) : text.substr(size);
    }
  } else {
    for (std::size_t at = 0; !is_full();) {
      at = from_right ? text.rfind(*separator) : text.find(*separator);
      if (at == text.npos) break;
      parts.emplace_back(from_right ? text.substr(at + separator->size()) : text.substr(0, at));
      text = from_right ? text.substr(0, at) : text.substr(at + separator->size());
    }
    parts.emplace_back(text);
  }
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t begin = 0, size = 0;
  for (std::size_t at = 0; at < text.size(); at += size) {
    if (!is_line_end(text, at, size)) continue;
    lines.emplace_back(text.substr(begin, at - begin + (keep_ends ? size : 0)));
    begin = at + size;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view with, std::int64_t most) {
  TextBuilder result;
  std::size_t at = 0;
  for (std::int64_t count = 0; count != most && at <= text.size(); ++count) {
    if (old.empty()) {  // before each character and at the end
      result += with;
      const std::size_t size = at < text.size() ? character_size(text, at) : 0;
      result += text.substr(at, size);
      at += std::max<std::size_t>(size, 1);
      continue;
    }
    const std::size_t found = text.find(old, at);
    if (found == text.npos) break;
    result += text.substr(at, found - at);
    result += with;
    at = found + old.size();
  }
  if (at < text.size()) result += text.substr(at);
  return result.take();
}

std::string upper_case(std::string_view text) {
  std::string result;
  for_each_character(text, [&](Utf8Character c, std::string_view) { append_upper(c.code_point, false, result); });
  return result;
}

std::string title_case(std::string_view text) {
  std::string result;
  bool is_inside = false;
  for_each_character(text, [&](Utf8Character c, std::string_view) {
    const auto category = category_of(c.code_point);
    const bool is_cased =
        category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
    if (is_inside) {
      append_utf8(lower_case(c.code_point), result);
    } else {
      append_upper(c.code_point, true, result);
    }
    is_inside = is_cased;
  });
  return result;
}

std::vector<std::size_t> slice_positions(std::int64_t size, std::optional<std::int64_t> begin,
                                         std::optional<std::int64_t> end, std::int64_t step) {
  const bool is_forward = step > 0;
  const std::int64_t low = is_forward ? 0 : -1, high = is_forward ? size : size - 1;
  const auto limit = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  const std::int64_t first = begin ? limit(*begin) : is_forward ? low : high;
  const std::int64_t last = end ? limit(*end) : is_forward ? high : low;
  std::vector<std::size_t> positions;
  if (is_forward) {
    for (std::int64_t at = first; at < last; at += std::min(step, size))
      positions.push_back(static_cast<std::size_t>(at));
  } else {
    for (std::int64_t at = first; at > last; at += std::max(step, -size - 1)) {
      positions.push_back(static_cast<std::size_t>(at));
    }
  }
  return positions;
}

std::string sliced(std::string_view text, std::optional<std::int64_t> begin, std::optional<std::int64_t> end,
                   std::int64_t step) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); at += character_size(text, at)) starts.push_back(at);
  std::string result;
  for (const std::size_t position : slice_positions(std::ssize(starts), begin, end, step)) {
    result += text.substr(starts[position], character_size(text, starts[position]));
  }
  return result;
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> result;
  for_each_character(text, [&](Utf8Character, std::string_view bytes) { result.emplace_back(bytes); });
  return result;
}

}  // namespace trireme::data::jinja
