#include "io/tokenizer/base64.hpp"

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

}  // namespace trireme::io
