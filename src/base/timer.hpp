#pragma once

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

}  // namespace trireme
