#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/posix/file_handle.hpp"

namespace trireme::io {

/// Buffered sequential writer; numbers are written as in memory, little-endian. All failures are IoErrors that name the
/// file.
class FileOutput {
 public:
  /// Creates or empties `path`.
  explicit FileOutput(std::string path);

  template <class T>
  void write(T value) {
    write_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void write_bytes(std::span<const std::byte> bytes);
  /// Flushes the buffer and closes the file. Without this call the file is truncated.
  void close();

 private:
  void flush();
  std::string path_;
  Descriptor file_;
  std::vector<std::byte> buffer_;
};

}  // namespace trireme::io
