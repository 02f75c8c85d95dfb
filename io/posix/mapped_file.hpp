#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "src/base/check.hpp"

namespace trireme::io {

/// Entire file mapped into memory for reading. Pages become unreadable when the file is truncated or its disk fails:
/// the process then exits with code 3 and one line naming the file, not by SIGBUS. Any other SIGBUS goes to the handler
/// installed before the first mapping.
class MappedFile {
 public:
  /// Throws IoError if the file cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Throws DataError if the path no longer names the mapped file, or its size or modification time has changed: the
  /// mapping's bytes are then undefined. Makes one stat call; its failure does not count as a change.
  void check_unchanged() const;

  /// Releases the memory of some of the bytes. Their next use reads them from the page cache or from the file.
  void release(std::span<const std::byte> range) const;

  struct Guard;

 private:
  std::string path_;
  struct stat status_ {};  // at the time of the mapping
  std::span<const std::byte> bytes_;
  Guard* guard_ = nullptr;  // for the signal handler
};

/// Reads little-endian numbers at any byte of a file in memory.
class ByteReader {
 public:
  ByteReader(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  std::size_t size_bytes() const { return bytes_.size(); }

  /// Returns the number of type T at byte `offset`. Throws DataError naming `what` if the file ends before it.
  template <class T>
  T at(std::size_t offset, const char* what) const {
    TRIREME_CHECK(offset <= bytes_.size() && bytes_.size() - offset >= sizeof(T), DataError,
                  "{} ends at byte {}, but {} should be at byte {}: it is cut short", path_, bytes_.size(), what,
                  offset);
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
};

}  // namespace trireme::io
