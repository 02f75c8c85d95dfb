#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/timer.hpp"

namespace trireme::app {

/// Status line on stderr that shows the progress, the rate and the remaining time. It is drawn only on a terminal, at
/// most a few times per second. Log lines overwrite it.
class ProgressBar {
 public:
  /// Counts are printed in `unit`, "MB", divided by `unit_size`. `begun` of them were done earlier.
  ProgressBar(std::string label, std::string unit, double unit_size, std::int64_t begun = 0);
  ~ProgressBar();
  ProgressBar& operator=(ProgressBar&&) = delete;

  /// `details` replace unit and rate on the line.
  void update(std::int64_t done, std::int64_t total, const std::string& details = "");
  /// Returns whether the next update is drawn.
  bool is_due() const;

 private:
  std::string label_;
  std::string unit_;
  double unit_size_;
  std::int64_t begun_;
  Timer since_start_;
  std::optional<Timer> since_drawn_;
};

/// Curve of a growing number of values in few characters, "▇▅▃▂▁": each is the mean of equally many values.
class Sparkline {
 public:
  explicit Sparkline(std::size_t max_columns) : max_columns_(max_columns) {}
  void add(double value);
  /// Returns the curve between its least and greatest mean; empty before the first value.
  std::string text() const;

 private:
  struct Column {
    double sum = 0;
    std::int64_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::size_t max_columns_;
  std::int64_t values_per_column_ = 1;
  std::vector<Column> columns_;
};

/// Progress as a bar on a terminal, elsewhere as an occasional line of the log: "scored 12 of 24 tokens, 3.0 tokens/s,
/// 4 s left". The count of the first update was done earlier.
class LoggedProgress {
 public:
  /// `past` is the past tense of the label: "scoring", "scored".
  LoggedProgress(std::string label, std::string past, std::string unit, double unit_size = 1)
      : label_(std::move(label)), past_(std::move(past)), unit_(std::move(unit)), unit_size_(unit_size) {}

  void update(std::int64_t done, std::int64_t total);
  /// Removes the bar.
  void end() { bar_.reset(); }

 private:
  std::string label_, past_, unit_;
  double unit_size_;
  std::optional<ProgressBar> bar_;
  std::int64_t begun_ = 0;
  Timer since_start_;
  Timer since_logged_;
};

}  // namespace trireme::app
