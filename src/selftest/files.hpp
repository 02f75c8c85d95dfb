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
  /// Creates the file `path`, writes it, and waits until its bytes are on the disk.
  virtual void write_and_sync(const std::string& path, std::span<const std::byte> bytes) = 0;
  /// Reads the whole file; from the disk rather than this machine's memory where the system permits it.
  virtual std::vector<std::byte> read(const std::string& path) = 0;
  /// Removes the files of a folder whose names begin with `prefix` and that nothing has changed for an hour.
  virtual void remove_old(const std::string& folder, const std::string& prefix) noexcept = 0;
  /// Removes the file. Nothing happens where there is none.
  virtual void remove(const std::string& path) noexcept = 0;
};

}  // namespace trireme::selftest
