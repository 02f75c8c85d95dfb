#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace trireme::io {

/// Bounded wait for a lock: the ranks of a job whose launcher was killed survive briefly, and the next job may start
/// immediately. The bound is 30 seconds, or the environment variable TRIREME_LOCK_WAIT.
class LockWait {
 public:
  /// Pauses for a tenth of a second and returns true; returns false after the bound. The first pause is logged:
  /// `locked` is in use by `owner`. Throws ConfigError if TRIREME_LOCK_WAIT is not a number of seconds.
  bool pause(const std::string& locked, const std::string& owner);

 private:
  std::optional<std::chrono::steady_clock::time_point> end_;  // empty before the first call
};

}  // namespace trireme::io
