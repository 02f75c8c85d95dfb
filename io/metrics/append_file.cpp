#include "io/metrics/append_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

#include "io/posix/system_call.hpp"

namespace trireme::io {

AppendFile::AppendFile(const std::string& option, const std::string& path, std::optional<std::int64_t> kept_bytes)
    : name_(fmt::format("{} {}", option, path)) {
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail("cannot be opened");
  if (kept_bytes && ::ftruncate(file_.get(), *kept_bytes) != 0) fail("cannot be cut");
}

void AppendFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::fail(const char* what) const { throw_system_error(fmt::format("{}: {}", name_, what), errno); }

}  // namespace trireme::io
