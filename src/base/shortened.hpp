#pragma once

#include <string>
#include <string_view>

#include "src/base/visible.hpp"

namespace trireme {

/// Quotes `text` on one line for a message: its first 200 bytes, cut at a character boundary, and " ..." for the rest.
/// Control characters are escaped.
inline std::string shortened(std::string_view text) {
  std::size_t size = 200;
  if (text.size() <= size) return visible(text, "");
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return visible(text.substr(0, size), "") + " ...";
}

}  // namespace trireme
