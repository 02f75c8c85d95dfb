#include "io/posix/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

void write_at(int descriptor, const std::string& path, const void* data, std::size_t size_bytes, std::int64_t offset) {
  const auto* bytes = static_cast<const char*>(data);
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

void write_and_sync(const std::string& path, std::string_view bytes) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  TRIREME_CHECK(file, IoError, "cannot create {}: {}", path, std::strerror(errno));
  write_at(file.get(), path, bytes.data(), bytes.size(), 0);
  TRIREME_CHECK(fsync(file.get()) == 0, IoError, "cannot bring {} to the disk: {}", path, std::strerror(errno));
  TRIREME_CHECK(close(file.release()) == 0, IoError, "cannot close {}: {}", path, std::strerror(errno));
}

void read_at(int descriptor, const std::string& path, void* data, std::size_t size_bytes, std::int64_t offset) {
  auto* bytes = static_cast<char*>(data);
  while (size_bytes > 0) {
    const ssize_t got =
        retried([&] { return uninterrupted([&] { return pread(descriptor, bytes, size_bytes, offset); }); });
    TRIREME_CHECK(got > 0, IoError, "cannot read {} bytes at byte {} of {}: {}", size_bytes, offset, path,
                  got < 0 ? std::strerror(errno) : "it ends there");
    bytes += got;
    size_bytes -= static_cast<std::size_t>(got);
    offset += got;
  }
}

std::int64_t regular_file_size(const std::string& path, Symlinks symlinks) {
  struct stat status {};
  const int result = retried(
      [&] { return symlinks == Symlinks::follow ? stat(path.c_str(), &status) : lstat(path.c_str(), &status); });
  TRIREME_CHECK(result == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
  const mode_t mode = status.st_mode;
  TRIREME_CHECK(S_ISREG(mode), DataError, "{} is {}, not a regular file", path,
                S_ISDIR(mode)    ? "a directory"
                : S_ISFIFO(mode) ? "a pipe"
                : S_ISLNK(mode)  ? "a symbolic link"
                : S_ISSOCK(mode) ? "a socket"
                                 : "a device");
  TRIREME_CHECK(retried([&] { return access(path.c_str(), R_OK); }) == 0, IoError, "cannot read {}: {}", path,
                std::strerror(errno));
  return status.st_size;
}

std::string read_whole_file(const std::string& path, std::int64_t max_bytes, Symlinks symlinks) {
  const std::int64_t size_bytes = regular_file_size(path, symlinks);
  TRIREME_CHECK(size_bytes <= max_bytes, DataError,
                "{} has {} bytes, but the limit is {}: it is damaged, or of another kind", path, size_bytes, max_bytes);
  const int flags = O_RDONLY | O_CLOEXEC | (symlinks == Symlinks::refuse ? O_NOFOLLOW : 0);
  std::string bytes;
  const int result = retried([&] {
    bytes.assign(static_cast<std::size_t>(size_bytes), '\0');
    const Descriptor file(open(path.c_str(), flags));
    if (!file) return -1;
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = read(file.get(), bytes.data() + done, bytes.size() - done);
      if (count < 0) return -1;
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return 0;
  });
  TRIREME_CHECK(result == 0, IoError, "cannot read {}: {}", path, std::strerror(errno));
  return bytes;
}

namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
}

FileOutput::FileOutput(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_) throw_system_error("cannot write " + path_, errno);
  buffer_.reserve(buffer_bytes);
}

void FileOutput::write_bytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(bytes.size(), buffer_bytes - buffer_.size()));
    buffer_.insert(buffer_.end(), chunk.begin(), chunk.end());
    bytes = bytes.subspan(chunk.size());
    if (buffer_.size() == buffer_bytes) flush();
  }
}

void FileOutput::flush() {
  std::span<const std::byte> rest(buffer_);
  while (!rest.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(file_.get(), rest.data(), rest.size()); });
    if (written <= 0) throw_system_error("cannot write " + path_, errno);
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void FileOutput::close() {
  flush();
  TRIREME_CHECK(::close(file_.release()) == 0, IoError, "cannot write {}: {}", path_, std::strerror(errno));
}

Spool::Spool(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
  if (!file_ || unlink(path_.c_str()) != 0) throw_system_error("cannot write " + path_, errno);
}

void Spool::append(const void* data, std::size_t size_bytes) {
  write_at(file_.get(), "the temporary file " + path_, data, size_bytes, size_bytes_);
  size_bytes_ += static_cast<std::int64_t>(size_bytes);
}

void Spool::read(std::int64_t offset, void* data, std::size_t size_bytes) const {
  read_at(file_.get(), "the temporary file " + path_, data, size_bytes, offset);
}

}  // namespace trireme::io
