#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.hpp"

namespace trireme::data {

/// Content of one of a task's files.
struct TaskFile {
  std::string path;  ///< for messages
  std::string text;
};

/// Lines of a text as in Python's text files: LF, CR LF or CR ends one.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}

  /// Advances to the next line. Returns false at the end.
  bool next();
  /// The line without its end.
  std::string_view line() const { return line_; }
  /// Number of the line, from 1.
  std::int64_t number() const { return number_; }

 private:
  std::string_view rest_;
  std::string_view line_;
  std::int64_t number_ = 0;
};

/// Cleans a text as Megatron-LM's tasks do: each stretch of white space becomes one space; then " . " becomes ". ",
/// from left to right, three times.
std::string clean_text(std::string_view text);

/// Python's int(text) in ASCII digits: white space around it, a sign, underscores between digits. None if it is not
/// such a number or exceeds 64 bits.
std::optional<std::int64_t> whole_number(std::string_view text);

/// Bad lines of a task's files: the first is an error, or all are skipped and counted.
class BadLines {
 public:
  explicit BadLines(bool skip = false) : skip_(skip) {}

  /// Runs `take`, which reads a line or a question. If bad lines are skipped, records a DataError instead of rethrowing
  /// it.
  template <class Take>
  void attempt(const Take& take) {
    try {
      take();
    } catch (const DataError& error) {
      if (!skip_) throw;
      note(error.what());
    }
  }
  /// Counts a skipped line.
  void note(std::string message) {
    if (count_++ < max_messages) messages_.push_back(std::move(message));
  }

  std::int64_t count() const { return count_; }
  /// Messages of the first ones, with file and line.
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  static constexpr std::int64_t max_messages = 10;
  bool skip_;
  std::int64_t count_ = 0;
  std::vector<std::string> messages_;
};

}  // namespace trireme::data
