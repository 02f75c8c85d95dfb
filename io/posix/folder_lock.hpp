#pragma once

#include <string>

namespace trireme::io {

class LockWait;

/// Reserves a folder, or a file in progress, for one job while this object lives. The lock is a file that names the
/// owner. A hard link creates it complete, so it works on any shared file system, with or without locks of its own.
///
/// A lock whose owner is dead is taken over, with a line in the log: the owner was a process of this host that has
/// ended, or an earlier life of this SLURM job. Any other owner has the time of `LockWait` to end; then
/// EnvironmentError names it.
class FolderLock {
 public:
  /// Creates the lock file `path` for the folder or file `locked`.
  FolderLock(std::string path, const std::string& locked);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Content of the lock file, unlike that of any other lock.
  const std::string& content() const { return content_; }

 private:
  void acquire(const std::string& path, const std::string& locked, LockWait& wait);
  bool try_link(const std::string& path);
  std::string path_;
  std::string content_;
};

}  // namespace trireme::io
