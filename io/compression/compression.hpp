#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/prepare/files.hpp"

namespace trireme::io {

using prepare::ByteSource;
using prepare::Compression;

/// Detects the compression from the file's first bytes. Throws IoError if it cannot be read. Throws DataError if its
/// name is that of a compressed file and it is not compressed.
Compression compression_of(const std::string& path);

/// Opens the bytes [begin, end) of the file at `path`; `end` beyond its end means its end. A compressed file is always
/// read entirely and unpacked: gzip (RFC 1952), Zstandard (RFC 8878), bzip2 or xz, with any number of members, frames
/// or streams. Memory is independent of the file size. Throws IoError if the file cannot be read. `read` throws
/// DataError with the file offset if compressed data are damaged or truncated.
std::unique_ptr<ByteSource> open_input(const std::string& path, std::int64_t begin = 0, std::int64_t end = INT64_MAX);

/// Returns `bytes` as a separate member, frame or stream, with a checksum; concatenated ones unpack to the concatenated
/// bytes. `compression` is not `none`.
std::string packed(std::string_view bytes, Compression compression);

}  // namespace trireme::io
