#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::io {

/// Writes all bytes to a position in an open file. Throws IoError that names `path`.
void write_at(int descriptor, const std::string& path, const char* bytes, std::size_t size_bytes, std::int64_t offset);

/// Reads that many bytes from a position in an open file. Throws IoError that names `path`, also where it ends before.
void read_at(int descriptor, const std::string& path, char* bytes, std::size_t size_bytes, std::int64_t offset);

}  // namespace trireme::io
