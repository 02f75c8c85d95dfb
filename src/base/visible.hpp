#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Returns `text` with its control characters escaped: "\n", "\x1b", "\x00". Those in `kept` are not.
std::string visible(std::string_view text, std::string_view kept = "\n\t");

}  // namespace trireme
