#include "io/posix/file_handle.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

void write_at(int descriptor, const std::string& path, const char* bytes, std::size_t size_bytes, std::int64_t offset) {
  while (size_bytes > 0) {
    const ssize_t written = uninterrupted([&] { return pwrite(descriptor, bytes, size_bytes, offset); });
    if (written <= 0) {
      throw_system_error(fmt::format("cannot write {} bytes at byte {} of {}", size_bytes, offset, path), errno);
    }
    bytes += written;
    size_bytes -= static_cast<std::size_t>(written);
    offset += written;
  }
}

void read_at(int descriptor, const std::string& path, char* bytes, std::size_t size_bytes, std::int64_t offset) {
  while (size_bytes > 0) {
    const ssize_t got = uninterrupted([&] { return pread(descriptor, bytes, size_bytes, offset); });
    TRIREME_CHECK(got > 0, IoError, "cannot read {} bytes at byte {} of {}: {}", size_bytes, offset, path,
                  got < 0 ? std::strerror(errno) : "it ends there");
    bytes += got;
    size_bytes -= static_cast<std::size_t>(got);
    offset += got;
  }
}

}  // namespace trireme::io
