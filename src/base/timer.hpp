#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace trireme {

/// Wall-clock time since construction or the last `restart`.
class Timer {
 public:
  void restart() { start_ = Clock::now(); }
  double elapsed_ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }
  double elapsed_s() const { return elapsed_ms() / 1000; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Returns "45 s", "12 min 05 s", "3 h 30 min" or "2 d 1 h".
inline std::string duration_text(double seconds) {
  const auto total = static_cast<long>(seconds + 0.5);
  if (total >= 86400) return fmt::format("{} d {} h", total / 86400, total % 86400 / 3600);
  if (total >= 3600) return fmt::format("{} h {:02} min", total / 3600, total % 3600 / 60);
  if (total >= 60) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return fmt::format("{} s", total);
}

/// Detects a wait that takes too long. The waiting loop polls it: a suspension of the entire process between two polls
/// counts as at most one second.
class Patience {
 public:
  /// `limit_s` 0: no limit.
  explicit Patience(double limit_s) : limit_s_(limit_s) {}
  void restart() {
    waited_s_ = 0;
    since_last_.restart();
  }
  bool over() {
    waited_s_ += std::min(1.0, since_last_.elapsed_s());
    since_last_.restart();
    return limit_s_ > 0 && waited_s_ > limit_s_;
  }

 private:
  double limit_s_;
  double waited_s_ = 0;
  Timer since_last_;
};

}  // namespace trireme
