#pragma once

#include <string>
#include <string_view>

namespace trireme::app {

/// `bytes` on one line for a terminal: control characters, and bytes that are not UTF-8, are written as escapes.
std::string printable(std::string_view bytes);

/// `printable` of a word of the user's for a message: of a long one its beginning and end.
std::string shortened(std::string_view word);

}  // namespace trireme::app
