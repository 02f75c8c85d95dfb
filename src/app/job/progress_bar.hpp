#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "src/base/timer.hpp"

namespace trireme::app {

/// Bar on stderr that shows how much is done, how fast, and how long the rest will take. It is drawn on a terminal
/// alone, a few times a second at most. Lines of the log take its place.
class ProgressBar {
 public:
  /// `unit` is what is counted, "MB"; counts are divided by `unit_size` for printing. `begun` were done before.
  ProgressBar(std::string label, std::string unit, double unit_size, std::int64_t begun = 0);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::int64_t done, std::int64_t total);

 private:
  std::string label_;
  std::string unit_;
  double unit_size_;
  std::int64_t begun_;
  bool on_terminal_;
  bool drawn_ = false;
  Timer since_start_;
  Timer since_drawn_;
};

/// Progress as a bar on a terminal, elsewhere as a line of the log now and then: "scored 12 of 24 tokens, 3.0 tokens/s,
/// 4 s left". The count of the first update was done before.
class LoggedProgress {
 public:
  /// `past` is the label once it is done: "scoring", "scored".
  LoggedProgress(std::string label, std::string past, std::string unit, double unit_size = 1)
      : label_(std::move(label)), past_(std::move(past)), unit_(std::move(unit)), unit_size_(unit_size) {}

  void update(std::int64_t done, std::int64_t total);
  /// Removes the bar.
  void end() { bar_.reset(); }
  /// Count of the first update.
  std::int64_t begun() const { return begun_; }

 private:
  std::string label_, past_, unit_;
  double unit_size_;
  std::optional<ProgressBar> bar_;
  std::int64_t begun_ = 0;
  Timer since_start_;
  Timer since_logged_;
};

/// Returns the bar's line after `elapsed_s` seconds: "reading [#####     ]  50%  12.0 of 24.5 MB  6.0 MB/s  2 s left".
/// `begun` of `done` was done before.
std::string progress_line(const std::string& label, const std::string& unit, double done, double total,
                          double elapsed_s, double begun = 0);

}  // namespace trireme::app
