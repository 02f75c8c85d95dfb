#pragma once

#include <string>
#include <string_view>

#include "src/base/visible.hpp"

namespace trireme {

/// A quotation for a message, on one line: the first 200 bytes of `text`, up to the end of a character, and " ..." for
/// the rest. Control characters are escaped.
inline std::string shortened(std::string_view text) {
  std::size_t size = 200;
  if (text.size() <= size) return visible(text, "");
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return visible(text.substr(0, size), "") + " ...";
}

}  // namespace trireme
