#include "src/app/commands/generate/line_editor.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/app/job/terminal.hpp"
#include "src/base/check.hpp"
#include "src/base/utf8.hpp"

namespace trireme::app {
namespace {

constexpr int idle_ms = 200;

constexpr char control(char letter) { return static_cast<char>(letter & 0x1F); }
constexpr char escape = 0x1B, backspace = 0x7F;

}  // namespace

LineBuffer::State LineBuffer::feed(char byte) {
  if (escape_ == Escape::begun) {
    escape_ = byte == '[' || byte == 'O' ? Escape::sequence : Escape::none;
    parameter_.clear();
    return State::editing;
  }
  if (escape_ == Escape::sequence) {
    if (byte >= 0x40 && byte <= 0x7E) {
      escape_ = Escape::none;
      feed_escape(byte);
    } else {
      parameter_ += byte;
    }
    return State::editing;
  }
  switch (byte) {
    case '\r':
    case '\n':
      return State::complete;
    case escape:
      escape_ = Escape::begun;
      break;
    case control('C'):
      erase(0, text_.size());
      break;
    case control('D'):
      if (text_.empty()) return State::end;
      feed_escape('~');
      break;
    case backspace:
    case control('H'):
      if (cursor_ > 0) erase(character_begin(text_, cursor_ - 1), cursor_);
      break;
    case control('A'):
      cursor_ = 0;
      break;
    case control('E'):
      cursor_ = text_.size();
      break;
    case control('B'):
      move_left();
      break;
    case control('F'):
      move_right();
      break;
    case control('K'):
      erase(cursor_, text_.size());
      break;
    case control('U'):
      erase(0, cursor_);
      break;
    case control('W'):
      erase_word();
      break;
    case control('P'):
      recall(-1);
      break;
    case control('N'):
      recall(1);
      break;
    default:
      if (static_cast<unsigned char>(byte) < 0x20 && byte != '\t') break;
      text_.insert(cursor_++, 1, byte);
  }
  return State::editing;
}

void LineBuffer::feed_escape(char final_byte) {
  switch (final_byte) {
    case 'A':
      return recall(-1);
    case 'B':
      return recall(1);
    case 'C':
      return move_right();
    case 'D':
      return move_left();
    case 'H':
      cursor_ = 0;
      return;
    case 'F':
      cursor_ = text_.size();
      return;
    case '~':
      if (parameter_ == "1" || parameter_ == "7") {
        cursor_ = 0;
      } else if (parameter_ == "4" || parameter_ == "8") {
        cursor_ = text_.size();
      } else if (parameter_.empty() || parameter_ == "3") {
        erase(cursor_, skip_characters(text_, cursor_, 1));
      }
      return;
    default:
      return;
  }
}

void LineBuffer::move_left() {
  if (cursor_ > 0) cursor_ = character_begin(text_, cursor_ - 1);
}

void LineBuffer::move_right() { cursor_ = skip_characters(text_, cursor_, 1); }

void LineBuffer::erase(std::size_t begin, std::size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void LineBuffer::erase_word() {
  std::size_t begin = cursor_;
  while (begin > 0 && text_[begin - 1] == ' ') --begin;
  while (begin > 0 && text_[begin - 1] != ' ') --begin;
  erase(begin, cursor_);
}

void LineBuffer::recall(int change) {
  const auto target = static_cast<std::ptrdiff_t>(recalled_) + change;
  if (target < 0 || target > std::ssize(history_)) return;
  if (recalled_ == history_.size()) new_line_ = text_;
  recalled_ = static_cast<std::size_t>(target);
  text_ = recalled_ == history_.size() ? new_line_ : history_[recalled_];
  cursor_ = text_.size();
}

std::string LineBuffer::take() {
  std::string line = std::exchange(text_, {});
  cursor_ = 0;
  if (!line.empty() && (history_.empty() || history_.back() != line)) history_.push_back(line);
  recalled_ = history_.size();
  return line;
}

std::optional<char> LineReader::next_byte() {
  while (arrived_.empty()) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, idle_ms);
    if (ready == 0) idle_();
    if (ready <= 0) continue;
    std::array<char, 4096> bytes{};
    const ssize_t size = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    TRIREME_CHECK(size >= 0, IoError, "standard input: reading failed: {}", std::strerror(errno));
    if (size == 0) return {};
    arrived_.assign(bytes.data(), static_cast<std::size_t>(size));
  }
  const char byte = arrived_.front();
  arrived_.erase(0, 1);
  return byte;
}

void LineReader::draw() const {
  const int columns = terminal_columns(STDERR_FILENO) - display_columns(sign_) - 1;
  const std::string& text = buffer_.text();
  std::size_t begin = 0;  // the first byte shown
  while (display_columns(std::string_view(text).substr(begin, buffer_.cursor() - begin)) > std::max(columns, 0)) {
    begin = skip_characters(text, begin, 1);
  }
  const std::string_view shown = fitting(std::string_view(text).substr(begin), columns);
  const std::string_view before = std::string_view(text).substr(begin, buffer_.cursor() - begin);
  fmt::print(stderr, "\r{}{}\x1b[K\r{}{}", sign_, shown, sign_, before);  // the cursor follows the text before it
  std::fflush(stderr);
}

std::optional<std::string> LineReader::read_edited() {
  const RawTerminal raw;
  for (LineBuffer::State state = LineBuffer::State::editing; state == LineBuffer::State::editing;) {
    draw();
    const std::optional<char> byte = next_byte();
    state = byte ? buffer_.feed(*byte) : LineBuffer::State::end;
    if (state == LineBuffer::State::editing) continue;
    std::fputs("\r\n", stderr);
    if (state == LineBuffer::State::end) return {};
  }
  return buffer_.take();
}

std::optional<std::string> LineReader::read() {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) return read_edited();
  std::string line;
  while (const std::optional<char> byte = next_byte()) {
    if (*byte == '\n') return line;
    line += *byte;
  }
  return line.empty() ? std::nullopt : std::optional(line);
}

}  // namespace trireme::app
