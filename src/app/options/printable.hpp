#pragma once

#include <string>
#include <string_view>

namespace trireme::app {

/// Returns `bytes` on one line for a terminal. Control characters, and bytes that are not UTF-8, are escaped.
std::string printable(std::string_view bytes);

/// Returns a word of the command line for a message: `printable`, and of a long one its beginning and end.
std::string shortened(std::string_view word);

}  // namespace trireme::app
