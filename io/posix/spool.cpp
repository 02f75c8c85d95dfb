#include "io/posix/spool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/posix/file_handle.hpp"
#include "io/posix/system_call.hpp"

namespace trireme::io {

Spool::Spool(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
  if (!file_ || unlink(path_.c_str()) != 0) throw_system_error("cannot write " + path_, errno);
}

void Spool::append(const void* data, std::size_t size_bytes) {
  write_at(file_.get(), "the temporary file " + path_, static_cast<const char*>(data), size_bytes, size_bytes_);
  size_bytes_ += static_cast<std::int64_t>(size_bytes);
}

void Spool::read(std::int64_t offset, void* data, std::size_t size_bytes) const {
  read_at(file_.get(), "the temporary file " + path_, static_cast<char*>(data), size_bytes, offset);
}

}  // namespace trireme::io
