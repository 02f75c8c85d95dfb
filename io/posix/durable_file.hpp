#pragma once

#include <string>

namespace trireme::io {

/// Waits until the bytes of the file or the entries of the directory at `path` are on the disk. IoError where not.
void sync_to_disk(const std::string& path);

/// Throws ConfigError where something stands at `path` that an output must not replace: a folder, a device, a pipe.
void check_replaceable(const std::string& path);

/// Renames `from` to `to`, replacing what is there, and waits until the new name is on the disk. IoError where not.
void rename_durably(const std::string& from, const std::string& to);

/// A name beside `target` under which a file is built: nothing that looks valid ever stands under `target` itself.
/// The file is created, empty, and removed again unless `commit` succeeds. What a killed process leaves behind is
/// called TARGET.partial-..., and can be deleted.
class TemporaryFile {
 public:
  /// Throws ConfigError where `target` must not be replaced.
  explicit TemporaryFile(std::string target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }
  /// Brings the bytes to the disk and gives the file its name, replacing what bore it.
  void commit();

 private:
  std::string target_;
  std::string path_;
  bool committed_ = false;
};

}  // namespace trireme::io
