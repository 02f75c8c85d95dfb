#pragma once

#include <string_view>

namespace trireme::app {

/// Returns the columns of the terminal at a descriptor; 80 if it does not say, 0 if it is no terminal.
int terminal_columns(int descriptor);

/// Returns the columns of the terminal that shows stderr: if a pipe leads there, $COLUMNS or 80.
int status_columns();

/// Returns the columns that a text of one line takes on a terminal: 2 for wide characters of East Asia and emoji, 0 for
/// combining ones.
int display_columns(std::string_view text);

/// Returns the longest beginning of `text` that takes at most `columns` columns.
std::string_view fitting(std::string_view text, int columns);

/// Returns whether the user's locale has characters beyond ASCII.
bool has_unicode_locale();

/// Replaces the line at the cursor of the terminal that shows stderr by the beginning of `text` that fits. The cursor
/// stays at its start, so that other output overwrites it, also after the terminal was resized. Lines of the log clear
/// it.
void draw_status_line(std::string_view text);

/// Clears a drawn status line and leaves raw mode, before the program ends. For any thread.
void restore_terminal();

/// Terminal at stdin in raw mode: keys arrive as they are typed, without echo and signals.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal& operator=(RawTerminal&&) = delete;
};

}  // namespace trireme::app
