#pragma once

#include <string>
#include <string_view>

namespace trireme::app {

/// `bytes` on one line for a terminal: control characters, and bytes that are not UTF-8, are written as escapes.
std::string printable(std::string_view bytes);

}  // namespace trireme::app
