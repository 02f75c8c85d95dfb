#include "io/system_call.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace trireme::io {

bool is_transient(int error) {
  constexpr int transient[] = {EINTR,       EAGAIN,    EIO,          ESTALE,     ETIMEDOUT, ENETDOWN,
                               ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ECONNRESET, EREMOTEIO};
  return std::ranges::find(transient, error) != std::end(transient);
}

bool is_absent(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP; }

bool pause_before_retry(int attempt) {
  const int error = errno;
  if (attempt >= 5 || !is_transient(error)) return false;
  std::chrono::milliseconds pause(20);
  for (int i = 1; i < attempt; ++i) pause *= 3;
  std::this_thread::sleep_for(pause);
  errno = error;
  return true;
}

}  // namespace trireme::io
