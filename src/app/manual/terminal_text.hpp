#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::app {

/// Returns `bytes` on one line for a terminal. Control characters, and bytes that are not UTF-8, are escaped.
std::string printable(std::string_view bytes);

/// Returns a word of the command line for a message: `printable`, and of a long one its beginning and end.
std::string shortened(std::string_view word);

/// Returns `text` for the inside of a pair of single quotes in a shell.
std::string single_quoted(std::string_view text);

/// Returns `text` as one word for a shell, in which nothing is expanded: in quotes unless all its characters are plain.
std::string shell_word(std::string_view text);

/// Breaks `text` into lines at spaces. Each line after the first begins with `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent = 0);

/// Returns a line of a help: `left`, then `right` wrapped in a column of its own.
std::string help_line(const std::string& left, const std::string& right);

}  // namespace trireme::app
