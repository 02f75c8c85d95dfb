#include "io/posix/selftest_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>

#include "io/posix/file.hpp"
#include "io/posix/system_call.hpp"

namespace trireme::io {

void SelftestFiles::write_and_sync(const std::string& path, std::span<const std::byte> bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) throw_system_error("cannot write " + path, errno);
  write_at(file.get(), path, bytes.data(), bytes.size(), 0);
  if (fsync(file.get()) != 0) throw_system_error("cannot bring " + path + " to the disk", errno);
}

std::vector<std::byte> SelftestFiles::read(const std::string& path) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(regular_file_size(path)));
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_system_error("cannot read " + path, errno);
  static_cast<void>(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED));  // a hint: refusal is harmless
  read_at(file.get(), path, bytes.data(), bytes.size(), 0);
  return bytes;
}

void SelftestFiles::remove_old(const std::string& folder, const std::string& prefix) noexcept {
  namespace fs = std::filesystem;
  const auto latest = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    std::error_code of_file;  // another job may remove the file at the same time
    const fs::file_time_type changed = entry->last_write_time(of_file);
    if (!of_file && changed < latest) remove(entry->path().string());
  }
}

void SelftestFiles::remove(const std::string& path) noexcept { ::unlink(path.c_str()); }

}  // namespace trireme::io
