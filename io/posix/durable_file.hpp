#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme::io {

/// Syncs the bytes of the file or the entries of the directory at `path` to disk. Throws IoError if that fails.
void sync_to_disk(const std::string& path);

/// Throws ConfigError if `path` is something that an output must not replace: a folder, a device, a pipe.
void check_replaceable(const std::string& path);

/// Renames `from` to `to`, replacing any existing file, and syncs the new name to disk. Throws IoError if that fails.
void rename_durably(const std::string& from, const std::string& to);

/// Temporary file beside `target` that receives its content, so `target` is never incomplete. It is created empty, and
/// removed unless `commit` succeeds. A killed process leaves TARGET.partial-..., which can be deleted.
class TemporaryFile {
 public:
  /// Throws ConfigError if `target` must not be replaced.
  explicit TemporaryFile(std::string target);
  ~TemporaryFile();
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }
  /// Syncs the bytes to disk and renames the file to `target`, replacing it.
  void commit();

 private:
  std::string target_;
  std::string path_;
  bool committed_ = false;
};

/// Writes files that belong together, a path and a text each, durably. None is replaced before all are written, and the
/// last one, which their readers need, is deleted before the first is replaced: a killed process leaves the old files,
/// the new ones, or none for a reader. Throws IoError, and ConfigError as TemporaryFile.
void replace_together(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace trireme::io
