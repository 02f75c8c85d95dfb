#include "io/tokenizer/base64.hpp"

#include <algorithm>
#include <cstdint>

namespace trireme::io {
namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 == 0)
    text = text.substr(0, text.size() - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;  // number of bits that belong to no byte yet
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == digits.npos) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (count >= 2) bytes += static_cast<char>(bits >> (count - 2));
    count = (count + 6) % 8;
  }
  const bool is_complete = text.size() % 4 != 1 && (bits & ((1U << count) - 1)) == 0;
  return is_complete ? std::optional(bytes) : std::nullopt;
}

std::string base64_of(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = at; i < at + 3; ++i) {
      bits = bits << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
    }
    const std::size_t known = std::min<std::size_t>(bytes.size() - at, 3) + 1;
    for (std::size_t i = 0; i < 4; ++i) text += i < known ? digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace trireme::io
