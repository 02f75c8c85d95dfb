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

/// Reserves a folder, or a file in progress, for one job during the object's lifetime. The lock is a file that names
/// the owner. It is created by a hard link, complete, and so needs no lock support from the shared file system.
///
/// Takes over the lock of a dead owner, with a log line: a process of this host that has exited, or an earlier attempt
/// of this SLURM job. Any other owner has until the `LockWait` bound to exit; then throws EnvironmentError naming it.
class FolderLock {
 public:
  /// Creates the lock file `path` for the folder or file `locked`.
  FolderLock(std::string path, const std::string& locked);
  ~FolderLock();
  FolderLock& operator=(FolderLock&&) = delete;

  /// Content of the lock file, unique to this lock.
  const std::string& content() const { return content_; }

 private:
  void acquire(const std::string& path, const std::string& locked, LockWait& wait);
  bool try_link(const std::string& path);
  std::string path_;
  std::string content_;
};

}  // namespace trireme::io
