#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/unique_handle.hpp"

namespace trireme::io {

/// POSIX file descriptor.
struct DescriptorTraits {
  using Handle = int;
  static Handle null() { return -1; }
  static void close(Handle descriptor) noexcept { ::close(descriptor); }
};
using Descriptor = UniqueHandle<DescriptorTraits>;

/// Writes all bytes to a position in an open file. Throws IoError that names `path`.
void write_at(int descriptor, const std::string& path, const void* data, std::size_t size_bytes, std::int64_t offset);

/// Creates or empties the file at `path`, no symbolic link, and writes these bytes to the disk. Throws IoError.
void write_and_sync(const std::string& path, std::string_view bytes);

/// Reads that many bytes at a position in an open file, again after a transient error. Throws IoError naming `path`,
/// also at a premature end of file.
void read_at(int descriptor, const std::string& path, void* data, std::size_t size_bytes, std::int64_t offset);

enum class Symlinks { follow, refuse };

/// Returns the size of the regular file at `path`. Throws IoError if it is missing or unreadable. Throws DataError
/// naming the kind if it is another kind of file, or a symbolic link not to be followed.
std::int64_t regular_file_size(const std::string& path, Symlinks symlinks = Symlinks::follow);

/// Returns all bytes of the regular file at `path`. Throws likewise, and DataError if it exceeds `max_bytes`.
std::string read_whole_file(const std::string& path, std::int64_t max_bytes, Symlinks symlinks = Symlinks::refuse);

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
