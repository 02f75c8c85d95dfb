#include "src/data/tokenizer/byte_spelling.hpp"

#include <array>
#include <unordered_map>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data {
namespace {

/// Printable bytes map to themselves, the other 68, in order, to the characters from U+0100 on.
std::array<char32_t, 256> character_table() {
  std::array<char32_t, 256> table{};
  char32_t next = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[byte] = printable ? static_cast<char32_t>(byte) : next++;
  }
  return table;
}

std::unordered_map<char32_t, char> byte_table() {
  std::unordered_map<char32_t, char> table;
  const auto characters = character_table();
  for (std::size_t byte = 0; byte < 256; ++byte) table.emplace(characters[byte], static_cast<char>(byte));
  return table;
}

}  // namespace

std::string bytes_of(std::string_view characters) {
  static const std::unordered_map<char32_t, char> table = byte_table();
  std::string bytes;
  const char* at = characters.data();
  const char* const end = at + characters.size();
  while (at != end) {
    const Utf8Character character = decode_utf8(at, end);
    const auto byte = table.find(character.code_point);
    if (character.size_bytes == 0 || byte == table.end()) return {};
    bytes += byte->second;
    at += character.size_bytes;
  }
  return bytes;
}

std::string spelling_of(std::string_view bytes) {
  static const std::array<char32_t, 256> table = character_table();
  std::string characters;
  for (const char byte : bytes) append_utf8(table[static_cast<unsigned char>(byte)], characters);
  return characters;
}

}  // namespace trireme::data
