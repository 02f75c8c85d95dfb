#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app {

/// Returns `bytes` on one line for a terminal. Control characters, and bytes that are not UTF-8, are escaped.
std::string printable(std::string_view bytes);

/// Returns a word of the command line for a message: `printable`; only the start and end of a long word.
std::string shortened(std::string_view word);

/// Escapes `text` for single quotes in a shell.
std::string single_quoted(std::string_view text);

/// Returns `text` as one word for a shell, quoted unless all characters are plain.
std::string shell_word(std::string_view text);
/// Returns several, with blanks between them.
std::string shell_words(const std::vector<std::string>& words);

/// Breaks `text` into lines at spaces. Each line after the first starts with `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent = 0);

/// Returns a line of the help: `left`, then `right` wrapped in its own column.
std::string help_line(const std::string& left, const std::string& right);

}  // namespace trireme::app
