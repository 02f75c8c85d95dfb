#include "io/metrics/append_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "io/posix/durable_file.hpp"
#include "io/posix/folder_lock.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

AppendFile::AppendFile(const std::string& option, const std::string& path) : name_(fmt::format("{} {}", option, path)) {
  check_replaceable(path);  // opening a pipe would wait for its reader
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail("cannot be opened");
  // Any other error means that the file system lacks such locks.
  for (LockWait wait; ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;) {
    TRIREME_CHECK(wait.pause(name_, "another job"), EnvironmentError,
                  "{} is in use by another job, which writes its records there. Choose another name, or wait", name_);
  }
}

void AppendFile::cut(std::int64_t size_bytes) {
  if (::ftruncate(file_.get(), size_bytes) != 0) fail("cannot be cut");
}

void AppendFile::append(std::string_view bytes) {
  const off_t begin = ::lseek(file_.get(), 0, SEEK_END);
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
    if (written < 0) {
      const int error = errno;
      static_cast<void>(::ftruncate(file_.get(), begin));  // removes a partial record
      throw IoError("{}: cannot be written: {}{}", name_, std::strerror(error),
                    meets_limit(error) ? " (ulimit -f)" : "");
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::fail(const char* what) const { throw_system_error(fmt::format("{}: {}", name_, what), errno); }

}  // namespace trireme::io
