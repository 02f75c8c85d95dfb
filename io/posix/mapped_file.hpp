#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "io/posix/mapping_guard.hpp"

namespace trireme::io {

/// Entire file mapped into memory for reading; a `MappingGuard` reports truncation.
class MappedFile {
 public:
  /// Throws IoError if the file cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Throws DataError if the path no longer names the mapped file, or its size or modification time has changed: the
  /// mapping's bytes are then undefined. Makes one stat call; its failure does not count as a change.
  void check_unchanged() const;

  /// Releases the memory of some of the bytes. Their next use reads them from the page cache or from the file.
  void release(std::span<const std::byte> range) const;

 private:
  std::string path_;
  struct stat status_ {};  // at the time of the mapping
  std::span<const std::byte> bytes_;
  std::optional<MappingGuard> guard_;
};

}  // namespace trireme::io
