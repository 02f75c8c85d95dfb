#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/posix/file.hpp"

namespace trireme::io {

/// Append-only file of complete records, which other programs can read immediately. Holds a flock during the object's
/// lifetime, if the file system supports it, so two jobs given the same file do not mix their records.
class AppendFile {
 public:
  /// Opens or creates `path` and locks it, keeping its content. Errors name `option` (a field in angle brackets) and
  /// `path`. Throws ConfigError if it is not a regular file, EnvironmentError if another job holds the lock for longer
  /// than `LockWait`, IoError otherwise, here and below.
  AppendFile(const std::string& option, const std::string& path);
  /// Truncates the file to `size_bytes`.
  void cut(std::int64_t size_bytes);
  /// Appends a record. On failure restores the previous content and throws IoError.
  void append(std::string_view bytes);

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string name_;
  Descriptor file_;
};

}  // namespace trireme::io
