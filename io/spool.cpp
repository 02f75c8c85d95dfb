#include "io/spool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/base/check.hpp"

namespace trireme::io {

Spool::Spool(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
  TRIREME_CHECK(file_ && unlink(path_.c_str()) == 0, IoError, "cannot write {}: {}", path_, std::strerror(errno));
}

void Spool::append(const void* data, std::size_t size_bytes) {
  const char* next = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t written = pwrite(file_.get(), next, size_bytes, size_bytes_);
    if (written < 0 && errno == EINTR) continue;
    TRIREME_CHECK(written > 0, IoError, "cannot write {} more bytes to the temporary file {}, which has {}: {}",
                  size_bytes, path_, size_bytes_, std::strerror(errno));
    next += written;
    size_bytes -= static_cast<std::size_t>(written);
    size_bytes_ += written;
  }
}

void Spool::read(std::int64_t offset, void* data, std::size_t size_bytes) const {
  char* next = static_cast<char*>(data);
  while (size_bytes > 0) {
    const ssize_t got = pread(file_.get(), next, size_bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    TRIREME_CHECK(got > 0, IoError, "cannot read byte {} of {} of the temporary file {}: {}", offset, size_bytes_,
                  path_, got < 0 ? std::strerror(errno) : "it ends there");
    next += got;
    size_bytes -= static_cast<std::size_t>(got);
    offset += got;
  }
}

}  // namespace trireme::io
