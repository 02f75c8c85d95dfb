#pragma once

#include <string>

namespace trireme::io {

/// Waits until the bytes of the file or the entries of the directory at `path` are on the disk. Throws IoError where
/// that fails.
void sync_to_disk(const std::string& path);

/// Throws ConfigError where something stands at `path` that an output must not replace: a folder, a device, a pipe.
void check_replaceable(const std::string& path);

/// Renames `from` to `to`, replacing what is there, and waits until the new name is on the disk. Throws IoError
/// where that fails.
void rename_durably(const std::string& from, const std::string& to);

/// File beside `target` in which its content is built, so that `target` itself is never half-made. The file is created
/// empty, and removed unless `commit` succeeds. A killed process leaves TARGET.partial-..., which can be deleted.
class TemporaryFile {
 public:
  /// Throws ConfigError where `target` must not be replaced.
  explicit TemporaryFile(std::string target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }
  /// Brings the bytes to the disk and gives the file its name, replacing the file that had it.
  void commit();

 private:
  std::string target_;
  std::string path_;
  bool committed_ = false;
};

}  // namespace trireme::io
