#include "src/app/job/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/app/job/terminal.hpp"
#include "src/base/log.hpp"

namespace trireme::app {
namespace {
constexpr double interval_s = 0.25;
constexpr double log_interval_s = 10;
constexpr int bar_width = 24;

/// Returns the line after `elapsed_s` seconds, without the bar if it takes more than `columns`: "reading [#####     ]
/// 50% 12.0 of 24.5 MB  6.0 MB/s  2 s left", and `details`. `begun` of `done` was done earlier.
std::string progress_line(const std::string& label, const std::string& unit, double done, double total,
                          double elapsed_s, double begun, const std::string& details, int columns) {
  const double fraction = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 1.0;
  const auto filled = static_cast<std::size_t>(fraction * bar_width);
  const double rate = elapsed_s > 0 ? (done - begun) / elapsed_s : 0;
  std::string bar(bar_width, ' ');
  std::fill_n(bar.begin(), filled, '#');
  const int decimals = total == std::floor(total) ? 0 : 1;
  std::string line = fmt::format(" {:3.0f}%  {:.{}f} of {:.{}f}", 100 * fraction, done, decimals, total, decimals);
  if (details.empty()) line += " " + unit;
  if (rate > 0 && details.empty()) line += fmt::format("  {:.1f} {}/s", rate, unit);
  if (rate > 0) line += "  " + duration_text((total - done) / rate) + " left";
  line += details;
  const bool fits = display_columns(label + line) + bar_width + 3 <= columns;
  return fits ? fmt::format("{} [{}]{}", label, bar, line) : label + line;
}

}  // namespace

ProgressBar::ProgressBar(std::string label, std::string unit, double unit_size, std::int64_t begun)
    : label_(std::move(label)), unit_(std::move(unit)), unit_size_(unit_size), begun_(begun) {}

ProgressBar::~ProgressBar() {
  if (since_drawn_) restore_terminal();
}

bool ProgressBar::is_due() const {
  const double elapsed_s = since_drawn_ ? since_drawn_->elapsed_s() : since_start_.elapsed_s();
  return elapsed_s >= interval_s && log::renews_lines();
}

void ProgressBar::update(std::int64_t done, std::int64_t total, const std::string& details) {
  if (!is_due()) return;
  draw_status_line(progress_line(label_, unit_, static_cast<double>(done) / unit_size_,
                                 static_cast<double>(total) / unit_size_, since_start_.elapsed_s(),
                                 static_cast<double>(begun_) / unit_size_, details, status_columns() - 1));
  since_drawn_.emplace();
}

void Sparkline::add(double value) {
  if (columns_.empty() || columns_.back().count == values_per_column_) {
    if (columns_.size() == max_columns_) {  // joins neighbours
      for (std::size_t i = 0; i < max_columns_ / 2; ++i) {
        const Column &a = columns_[2 * i], &b = columns_[2 * i + 1];
        columns_[i] = {a.sum + b.sum, a.count + b.count};
      }
      columns_.resize(max_columns_ / 2);
      values_per_column_ *= 2;
    }
    columns_.emplace_back();
  }
  columns_.back().sum += value;
  ++columns_.back().count;
}

std::string Sparkline::text() const {
  constexpr const char* levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (columns_.empty()) return "";
  const auto [least, greatest] = std::ranges::minmax(columns_, {}, &Column::mean);
  const double range = greatest.mean() - least.mean();
  std::string text;
  for (const Column& column : columns_) {
    const double height = range > 0 ? (column.mean() - least.mean()) / range : 0;
    text += levels[static_cast<int>(std::min(7.0, 8 * height))];
  }
  return text;
}

void LoggedProgress::update(std::int64_t done, std::int64_t total) {
  if (!bar_) {
    begun_ = done;
    bar_.emplace(label_, unit_, unit_size_, begun_);
  }
  bar_->update(done, total);
  if (log::renews_lines() || since_logged_.elapsed_s() < log_interval_s || done == begun_) return;
  since_logged_.restart();
  const double rate = static_cast<double>(done - begun_) / since_start_.elapsed_s();
  log::info("{} {:.0f} of {:.0f} {}, {:.1f} {}/s, {} left", past_, static_cast<double>(done) / unit_size_,
            static_cast<double>(total) / unit_size_, unit_, rate / unit_size_, unit_,
            duration_text(static_cast<double>(total - done) / rate));
}

}  // namespace trireme::app
