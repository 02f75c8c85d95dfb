#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/posix/file_handle.hpp"

namespace trireme::io {

/// File that grows by complete records, which other programs can read at once. It is locked (flock) while this object
/// lives, where the file system has such locks: two jobs that were given one file do not mix their records.
class AppendFile {
 public:
  /// Opens `path`, or creates it, and locks it; its content stays. Errors name `option` (a field in angle brackets) and
  /// `path`. Throws ConfigError where it is no regular file, EnvironmentError where another job has the lock for longer
  /// than `LockWait`, IoError otherwise, here and below.
  AppendFile(const std::string& option, const std::string& path);
  /// Cuts the file to its first `size_bytes` bytes.
  void cut(std::int64_t size_bytes);
  /// Adds a record. Where that fails, the file keeps the content that it had, and IoError is thrown.
  void append(std::string_view bytes);

 private:
  void lock();
  [[noreturn]] void fail(const char* what) const;
  std::string name_;
  Descriptor file_;
};

}  // namespace trireme::io
