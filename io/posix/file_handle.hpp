#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

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
void write_at(int descriptor, const std::string& path, const char* bytes, std::size_t size_bytes, std::int64_t offset);

/// Reads that many bytes at a position in an open file. Throws IoError naming `path`, also at a premature end of file.
void read_at(int descriptor, const std::string& path, char* bytes, std::size_t size_bytes, std::int64_t offset);

}  // namespace trireme::io
