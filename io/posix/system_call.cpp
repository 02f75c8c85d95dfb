#include "io/posix/system_call.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "src/base/error.hpp"

namespace trireme::io {

namespace {

/// Returns whether a call that failed with this errno may succeed on retry: it was interrupted, or a device or network
/// file system did not respond.
bool is_transient(int error) {
  constexpr int transient[] = {EINTR,       EAGAIN,    EIO,          ESTALE,     ETIMEDOUT, ENETDOWN,
                               ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ECONNRESET, EREMOTEIO};
  return std::ranges::find(transient, error) != std::end(transient);
}

}  // namespace

rlim_t limit_of(decltype(RLIMIT_FSIZE) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
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

bool meets_limit(int error) { return error == EMFILE || (error == EFBIG && limit_of(RLIMIT_FSIZE) != RLIM_INFINITY); }

void throw_system_error(const std::string& what, int error) {
  if (!meets_limit(error)) throw IoError("{}: {}", what, std::strerror(error));
  throw EnvironmentError("{}: {}: {} of this process is {}; raise it", what, std::strerror(error),
                         error == EMFILE ? "ulimit -n" : "ulimit -f (in bytes)",
                         limit_of(error == EMFILE ? RLIMIT_NOFILE : RLIMIT_FSIZE));
}

}  // namespace trireme::io
