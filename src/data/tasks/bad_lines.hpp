#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.hpp"

namespace trireme::data {

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
