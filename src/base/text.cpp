#include "src/base/text.hpp"

#include <algorithm>

#include "src/base/utf8.hpp"

namespace trireme {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(parts.back().size() + 1, text.size()));
  }
  return parts;
}

std::string visible(std::string_view text, std::string_view kept) {
  std::string result;
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_c1 = byte(i) == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0;  // U+0080 to U+009F in UTF-8
    if (kept.find(text[i]) != kept.npos || (byte(i) >= 0x20 && byte(i) != 0x7F && !is_c1)) {
      result += text[i];
    } else if (text[i] == '\n') {
      result += "\\n";
    } else if (text[i] == '\t') {
      result += "\\t";
    } else {
      result += fmt::format("\\x{:02x}", byte(i));
      if (is_c1) result += fmt::format("\\x{:02x}", byte(++i));
    }
  }
  return result;
}

std::string as_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = find_invalid_utf8(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += "\uFFFD";
    std::size_t size = std::min<std::size_t>(text.size(), 3);
    // Continuation bytes complete a character that was only cut short.
    for (; size > 1; --size) {
      const std::string longer = std::string(text.substr(0, size)) + "\x80\x80";
      if (decode_utf8(longer.data(), longer.data() + longer.size()).size_bytes > 0) break;
    }
    text.remove_prefix(size);
  }
  return result;
}

bool is_plain_name(std::string_view name, std::size_t max_bytes) {
  return !name.empty() && name.size() <= max_bytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/").find(c) != std::string_view::npos;
  });
}

std::string shortened(std::string_view text) {
  std::size_t size = 200;
  if (text.size() <= size) return visible(text, "");
  while (size > 0 && continues_character(text[size])) --size;
  return visible(text.substr(0, size), "") + " ...";
}

}  // namespace trireme
