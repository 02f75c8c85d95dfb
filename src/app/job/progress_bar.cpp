#include "src/app/job/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/base/log.hpp"

namespace trireme::app {
namespace {
constexpr double interval_s = 0.25;
constexpr double log_interval_s = 10;
constexpr int bar_width = 24;

/// Returns the bar's line after `elapsed_s` seconds: "reading [#####     ]  50%  12.0 of 24.5 MB  6.0 MB/s  2 s left".
/// `begun` of `done` was done earlier.
std::string progress_line(const std::string& label, const std::string& unit, double done, double total,
                          double elapsed_s, double begun) {
  const double fraction = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 1.0;
  const auto filled = static_cast<std::size_t>(fraction * bar_width);
  const double rate = elapsed_s > 0 ? (done - begun) / elapsed_s : 0;
  std::string bar(bar_width, ' ');
  std::fill_n(bar.begin(), filled, '#');
  const int decimals = total == std::floor(total) ? 0 : 1;
  std::string line = fmt::format("{} [{}] {:3.0f}%  {:.{}f} of {:.{}f} {}", label, bar, 100 * fraction, done, decimals,
                                 total, decimals, unit);
  if (rate > 0) line += fmt::format("  {:.1f} {}/s  {} left", rate, unit, duration_text((total - done) / rate));
  return line;
}

}  // namespace

ProgressBar::ProgressBar(std::string label, std::string unit, double unit_size, std::int64_t begun)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      unit_size_(unit_size),
      begun_(begun),
      on_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);  // to the front of the line, and clear it
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  if (!on_terminal_ || since_drawn_.elapsed_s() < interval_s) return;
  const std::string line =
      progress_line(label_, unit_, static_cast<double>(done) / unit_size_, static_cast<double>(total) / unit_size_,
                    since_start_.elapsed_s(), static_cast<double>(begun_) / unit_size_);
  fmt::print(stderr, "\r{}\x1b[K", line);
  since_drawn_.restart();
  drawn_ = true;
}

void LoggedProgress::update(std::int64_t done, std::int64_t total) {
  if (!bar_) {
    begun_ = done;
    bar_.emplace(label_, unit_, unit_size_, begun_);
  }
  bar_->update(done, total);
  if (isatty(STDERR_FILENO) != 0 || since_logged_.elapsed_s() < log_interval_s || done == begun_) return;
  since_logged_.restart();
  const double rate = static_cast<double>(done - begun_) / since_start_.elapsed_s();
  log::info("{} {:.0f} of {:.0f} {}, {:.1f} {}/s, {} left", past_, static_cast<double>(done) / unit_size_,
            static_cast<double>(total) / unit_size_, unit_, rate / unit_size_, unit_,
            duration_text(static_cast<double>(total - done) / rate));
}

}  // namespace trireme::app
