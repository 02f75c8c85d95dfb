#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trireme::selftest {

/// File system under test. All functions throw IoError that names the file.
class Files {
 public:
  virtual ~Files() = default;
  /// Creates and writes the file `path`, and syncs it to disk.
  virtual void write_and_sync(const std::string& path, std::span<const std::byte> bytes) = 0;
  /// Reads the entire file, bypassing this machine's page cache if the system permits.
  virtual std::vector<std::byte> read(const std::string& path) = 0;
  /// Removes the files of a folder whose names begin with `prefix` and that have been unchanged for an hour.
  virtual void remove_old(const std::string& folder, const std::string& prefix) noexcept = 0;
  /// Removes the file; no-op if it does not exist.
  virtual void remove(const std::string& path) noexcept = 0;
};

}  // namespace trireme::selftest
