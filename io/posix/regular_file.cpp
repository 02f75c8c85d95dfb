#include "io/posix/regular_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

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

std::string read_regular_file(const std::string& path, std::int64_t max_bytes) {
  const std::int64_t size = regular_file_size(path);
  TRIREME_CHECK(size <= max_bytes, DataError, "{} has {} bytes; such a file has at most {}", path, size, max_bytes);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  TRIREME_CHECK(file.is_open() && (size == 0 || text << file.rdbuf()) && !file.bad(), IoError, "cannot read {}", path);
  return std::move(text).str();
}

}  // namespace trireme::io
