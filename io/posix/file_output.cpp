#include "io/posix/file_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
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

}  // namespace trireme::io
