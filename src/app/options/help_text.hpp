#pragma once

#include <string>

namespace trireme::app {

/// Breaks `text` into lines at spaces. Each line after the first begins with `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent = 0);

/// Returns a line of a help: `left`, then `right` wrapped in a column of its own.
std::string help_line(const std::string& left, const std::string& right);

}  // namespace trireme::app
