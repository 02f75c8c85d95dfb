#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trireme::io {

/// Bytes that come one after another: of a file, or what is packed in one.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to `size_bytes` into `data`; fewer only at the end.
  virtual std::size_t read(char* data, std::size_t size_bytes) = 0;
  /// Bytes of the file that were read for it.
  virtual std::int64_t file_bytes_read() const = 0;
};

enum class Compression { none, gzip, zstd };

/// Finds the compression by the first bytes of the file. Throws IoError where it cannot be read. Throws DataError where
/// its name ends in .gz or .zst and it is not compressed.
Compression compression_of(const std::string& path);

/// Opens the bytes [begin, end) of the file at `path`; `end` beyond its end means its end. A compressed file is always
/// read whole, and unpacked: gzip (RFC 1952) or Zstandard (RFC 8878), with any number of members or frames. Memory does
/// not grow with the file. Throws IoError where the file cannot be read. `read` throws DataError with the byte of the
/// file where compressed data are damaged or end too early.
std::unique_ptr<ByteSource> open_input(const std::string& path, std::int64_t begin = 0, std::int64_t end = INT64_MAX);

/// The first place from `at` on, in a plain file of `size_bytes`, where a line begins, or the end of the file.
std::int64_t line_begin(const std::string& path, std::int64_t size_bytes, std::int64_t at);

}  // namespace trireme::io
