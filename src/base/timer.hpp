#pragma once

#include <algorithm>
#include <chrono>

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

/// Says when something has been waited for too long. To be asked again and again meanwhile: a pause of the whole
/// process (a suspended job) then counts as one second at the most.
class Patience {
 public:
  /// `limit_s` 0: for ever.
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
