#include "io/posix/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/posix/file_handle.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

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

}  // namespace trireme::io
