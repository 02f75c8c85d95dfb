#pragma once

#include <string>
#include <string_view>

#include "src/base/utf8.hpp"
#include "src/base/visible.hpp"

namespace trireme {

/// Quotes `text` on one line for a message: its first 200 bytes, cut at a character boundary, and " ..." for the rest.
/// Control characters are escaped.
inline std::string shortened(std::string_view text) {
  std::size_t size = 200;
  if (text.size() <= size) return visible(text, "");
  while (size > 0 && continues_character(text[size])) --size;
  return visible(text.substr(0, size), "") + " ...";
}

}  // namespace trireme
