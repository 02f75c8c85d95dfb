#include "io/posix/selftest_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/posix/file_handle.hpp"
#include "io/posix/regular_file.hpp"
#include "io/posix/system_call.hpp"

namespace trireme::io {

void SelftestFiles::write_and_sync(const std::string& path, std::span<const std::byte> bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) throw_system_error("cannot write " + path, errno);
  write_at(file.get(), path, reinterpret_cast<const char*>(bytes.data()), bytes.size(), 0);
  if (fsync(file.get()) != 0) throw_system_error("cannot bring " + path + " to the disk", errno);
}

std::vector<std::byte> SelftestFiles::read(const std::string& path) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(regular_file_size(path)));
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_system_error("cannot read " + path, errno);
  static_cast<void>(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED));  // advice: refusal harms nothing
  read_at(file.get(), path, reinterpret_cast<char*>(bytes.data()), bytes.size(), 0);
  return bytes;
}

void SelftestFiles::remove(const std::string& path) noexcept { ::unlink(path.c_str()); }

}  // namespace trireme::io
