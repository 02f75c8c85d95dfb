#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <type_traits>

namespace trireme::io {

/// Returns the soft limit of a resource of this process; RLIM_INFINITY if none.
rlim_t limit_of(decltype(RLIMIT_FSIZE) resource);

/// Returns whether this errno means that the name does not exist.
bool is_absent(int error);

/// Pauses after attempt `attempt` (from 1) failed with `errno`, and returns true; returns false if a retry is useless.
/// Keeps `errno`.
bool pause_before_retry(int attempt);

/// Returns the result of `call`, a system call that returns a negative number or null and sets errno where it fails.
/// Repeats it after a transient error: at most 5 calls, with pauses of 20, 60, 180 and 540 ms between them.
template <class Call>
auto retried(const Call& call) {
  for (int attempt = 1;; ++attempt) {
    auto result = call();
    bool failed = false;
    if constexpr (std::is_signed_v<decltype(result)>) {
      failed = result < 0;
    } else {
      failed = !result;
    }
    if (!failed || !pause_before_retry(attempt)) return result;
  }
}

/// Returns the result of `call`, a system call that returns a negative number and sets errno where it fails. Repeats it
/// immediately after each interruption by a signal: at most 100 calls. Callers restart the count after each part of
/// their work.
template <class Call>
auto uninterrupted(const Call& call) {
  constexpr int max_calls = 100;
  auto result = call();
  for (int calls = 1; result < 0 && errno == EINTR && calls < max_calls; ++calls) result = call();
  return result;
}

/// Returns whether `error`, an errno, means that a process limit was reached (ulimit -f, ulimit -n).
bool meets_limit(int error);

/// Throws the error of a system call that failed with `error`: "`what`: its text". An EnvironmentError naming the limit
/// if one was reached, else an IoError.
[[noreturn]] void throw_system_error(const std::string& what, int error);

}  // namespace trireme::io
