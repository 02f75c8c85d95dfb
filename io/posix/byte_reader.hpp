#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "src/base/check.hpp"

namespace trireme::io {

/// Reads little-endian numbers at any byte of a file in memory.
class ByteReader {
 public:
  ByteReader(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  std::size_t size_bytes() const { return bytes_.size(); }

  /// Returns the number of type T at byte `offset`. Throws DataError, which names `what`, where the file ends before.
  template <class T>
  T at(std::size_t offset, const char* what) const {
    TRIREME_CHECK(offset <= bytes_.size() && bytes_.size() - offset >= sizeof(T), DataError,
                  "{} ends at byte {}, but {} should stand at byte {}: it is cut short", path_, bytes_.size(), what,
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
