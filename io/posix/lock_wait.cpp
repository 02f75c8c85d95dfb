#include "io/posix/lock_wait.hpp"

#include <cstdlib>
#include <thread>

#include "src/base/check.hpp"
#include "src/base/log.hpp"

namespace trireme::io {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::duration<double> bound() {
  const char* text = std::getenv("TRIREME_LOCK_WAIT");
  if (text == nullptr || *text == '\0') return std::chrono::seconds(30);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  TRIREME_CHECK(*end == '\0' && seconds >= 0 && seconds <= 86400, ConfigError,
                "TRIREME_LOCK_WAIT={} is not a number of seconds: give one from 0 to 86400 or unset it", text);
  return std::chrono::duration<double>(seconds);
}

}  // namespace

bool LockWait::pause(const std::string& locked, const std::string& owner) {
  if (!end_) {
    const std::chrono::duration<double> wait = bound();
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
    if (wait.count() > 0) {
      log::info("{} is in use by {}: waiting at most {:g} s for its end", locked, owner, wait.count());
    }
  }
  if (Clock::now() >= *end_) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return true;
}

}  // namespace trireme::io
