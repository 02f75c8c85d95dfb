#pragma once

#include <memory>
#include <string>

#include "io/posix/folder_lock.hpp"

namespace trireme::io {

/// A folder beside a file that is being made, for what it is made of. It is one job's at a time, and goes with this
/// object; what a killed job left in it goes when the next one takes it.
class WorkFolder {
 public:
  /// Throws EnvironmentError where another job has it, IoError where it cannot be made.
  /// `target` is the file that is being made, for the message.
  WorkFolder(std::string path, const std::string& target);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The path of a file in it.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  void clear() const;
  std::string path_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace trireme::io
