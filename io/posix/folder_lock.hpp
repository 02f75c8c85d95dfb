#pragma once

#include <string>

namespace trireme::io {

/// A folder, or a file that is being written, is one job's for as long as this object lives: another file says whose.
/// That file is made complete in one go (a hard link), so it works on any shared file system, with or without its own
/// locks.
///
/// A lock whose owner is dead is taken over, with a line in the log. Dead is: a process of this host that is no longer
/// there, or an earlier life of this SLURM job. Otherwise, EnvironmentError names the owner.
class FolderLock {
 public:
  /// `path` is the file that says whose `locked` is.
  FolderLock(std::string path, const std::string& locked);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// The file's content: no other lock has the same.
  const std::string& content() const { return content_; }

 private:
  bool try_acquire();
  std::string path_;
  std::string content_;
};

}  // namespace trireme::io
