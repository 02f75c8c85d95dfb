#include "src/app/job/terminal.hpp"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/utf8.hpp"

namespace trireme::app {
namespace {

/// State of the process' terminal, which a signal's thread restores.
struct TerminalState {
  std::mutex mutex;
  bool has_status_line = false;
  std::optional<termios> cooked;  // settings before raw mode
};

TerminalState& state() {
  static TerminalState the_state;
  return the_state;
}

struct CodeRange {
  char32_t first, last;
  int columns;
};

/// Characters that do not take one column (Unicode 15, EastAsianWidth.txt and general category Mn), in blocks.
constexpr CodeRange unusual_widths[] = {
    {0x300, 0x36F, 0},   {0x1100, 0x115F, 2},   {0x200B, 0x200F, 0},  {0x20D0, 0x20FF, 0}, {0x2E80, 0xA4CF, 2},
    {0xAC00, 0xD7A3, 2}, {0xF900, 0xFAFF, 2},   {0xFE00, 0xFE0F, 0},  {0xFE30, 0xFE6F, 2}, {0xFF00, 0xFF60, 2},
    {0xFFE0, 0xFFE6, 2}, {0x1F300, 0x1FAFF, 2}, {0x20000, 0x3FFFD, 2}};

int columns_of(char32_t code_point) {
  const auto* range = std::ranges::find_if(
      unusual_widths, [&](const CodeRange& r) { return r.first <= code_point && code_point <= r.last; });
  return range == std::end(unusual_widths) ? 1 : range->columns;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

int terminal_columns(int descriptor) {
  if (isatty(descriptor) != 1) return 0;
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int status_columns() {
  if (const int columns = terminal_columns(STDERR_FILENO); columns > 0) return columns;
  const char* columns = std::getenv("COLUMNS");
  return std::max(columns == nullptr ? 80 : std::atoi(columns), 20);
}

int display_columns(std::string_view text) {
  int columns = 0;
  for_each_character(
      text, [&](Utf8Character c, std::string_view) { columns += c.size_bytes == 0 ? 1 : columns_of(c.code_point); });
  return columns;
}

std::string_view fitting(std::string_view text, int columns) {
  std::size_t bytes = 0;
  bool fits = true;
  for_each_character(text, [&](Utf8Character c, std::string_view character) {
    columns -= c.size_bytes == 0 ? 1 : columns_of(c.code_point);
    fits = fits && columns >= 0;
    if (fits) bytes += character.size();
  });
  return text.substr(0, bytes);
}

bool has_unicode_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale(value);
    return locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

void draw_status_line(std::string_view text) {
  const int columns = status_columns();
  const std::lock_guard lock(state().mutex);
  put("\r\x1b[J" + std::string(fitting(text, columns - 1)) + "\r");  // J: to the end of the screen
  state().has_status_line = true;
}

void restore_terminal() {
  const std::lock_guard lock(state().mutex);
  if (state().has_status_line) put("\r\x1b[J");
  state().has_status_line = false;
  if (state().cooked) tcsetattr(STDIN_FILENO, TCSADRAIN, &*state().cooked);
  state().cooked.reset();
}

RawTerminal::RawTerminal() {
  termios settings{};
  if (tcgetattr(STDIN_FILENO, &settings) != 0) return;
  const std::lock_guard lock(state().mutex);
  state().cooked = settings;
  settings.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
  settings.c_cc[VMIN] = 1;
  settings.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
}

RawTerminal::~RawTerminal() { restore_terminal(); }

}  // namespace trireme::app
