#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/posix/file_handle.hpp"

namespace trireme::io {

/// Bytes spooled to disk until their number is known. The file is unnamed: it vanishes with the process, however that
/// ends. All failures are IoErrors that name the path.
class Spool {
 public:
  /// Uses space on the file system of `path`, an unused name.
  explicit Spool(std::string path);
  void append(const void* data, std::size_t size_bytes);
  void read(std::int64_t offset, void* data, std::size_t size_bytes) const;
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace trireme::io
