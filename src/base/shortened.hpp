#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// A quotation for a message: the first 200 bytes of `text`, up to the end of a character, and " ..." for the rest.
inline std::string shortened(std::string_view text) {
  std::size_t size = 200;
  if (text.size() <= size) return std::string(text);
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return std::string(text.substr(0, size)) + " ...";
}

}  // namespace trireme
