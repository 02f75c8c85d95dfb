#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "io/posix/mapping_guard.hpp"

namespace trireme::io {

/// A whole file mapped into memory for reading, guarded against its becoming shorter (`MappingGuard`).
class MappedFile {
 public:
  /// Throws IoError where the file cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Throws DataError where the path no longer names the file that was mapped, or its size or time of modification is
  /// another: what was read from the mapping may be anything. One call of stat; that it fails is no change.
  void check_unchanged() const;

  /// Releases the memory of `part`, some of the bytes. Its next use reads it from the page cache or from the file.
  void release(std::span<const std::byte> part) const;

 private:
  std::string path_;
  struct stat status_ {};  // when it was mapped
  std::span<const std::byte> bytes_;
  std::optional<MappingGuard> guard_;
};

}  // namespace trireme::io
