#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app {

/// Line that a user edits, with a history of earlier ones. Keys as in most shells: arrows, Home, End, Delete and
/// Backspace, and of Emacs' keys ^A ^E ^B ^F ^P ^N ^K ^U ^W; ^C clears the line, ^D ends on an empty one.
class LineBuffer {
 public:
  enum class State { editing, complete, end };

  /// Takes a byte of the keyboard.
  State feed(char byte);
  const std::string& text() const { return text_; }
  /// Byte of `text` before which the next character is inserted.
  std::size_t cursor() const { return cursor_; }
  /// Returns the complete line, adds it to the history unless it is empty or repeats the last one, and begins another.
  std::string take();

 private:
  /// Takes a key of an escape sequence: its final byte, after the number `parameter` if any.
  void feed_escape(char final_byte);
  void move_left();
  void move_right();
  void erase(std::size_t begin, std::size_t end);
  void erase_word();
  /// Replaces the text by that of the history, one of `change` lines later.
  void recall(int change);

  std::string text_;
  std::size_t cursor_ = 0;
  std::vector<std::string> history_;
  std::size_t recalled_ = 0;  // line of the history that is shown; its size: the new one
  std::string new_line_;      // text of the new line while another one is shown
  enum class Escape { none, begun, sequence } escape_ = Escape::none;
  std::string parameter_;
};

/// Reads lines from standard input: on a terminal edited by the user, otherwise as they are.
class LineReader {
 public:
  /// `sign` precedes each line on a terminal. `idle` is called a few times a second while nothing arrives.
  LineReader(std::string sign, std::function<void()> idle) : sign_(std::move(sign)), idle_(std::move(idle)) {}
  /// Returns the next line without its line feed; nothing at the end.
  std::optional<std::string> read();

 private:
  /// Returns the next byte; nothing at the end.
  std::optional<char> next_byte();
  std::optional<std::string> read_edited();
  void draw() const;

  std::string sign_;
  std::function<void()> idle_;
  LineBuffer buffer_;
  std::string arrived_;  // bytes not yet used
};

}  // namespace trireme::app
