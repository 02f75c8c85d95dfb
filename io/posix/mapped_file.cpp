#include "io/posix/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/posix/file_handle.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TRIREME_CHECK(file && fstat(file.get(), &status_) == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
  if (status_.st_size == 0) return;
  const auto size_bytes = static_cast<std::size_t>(status_.st_size);
  void* address = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  TRIREME_CHECK(address != MAP_FAILED, IoError, "cannot map the {} bytes of {} into memory: {}", size_bytes, path,
                std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size_bytes};
  guard_.emplace(path, bytes_);
}

MappedFile::~MappedFile() {
  guard_.reset();
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::check_unchanged() const {
  struct stat now {};
  const bool is_there = stat(path_.c_str(), &now) == 0;
  if (!is_there && errno != ENOENT) return;
  const char* const change =
      !is_there                                                      ? "was removed or renamed"
      : now.st_dev != status_.st_dev || now.st_ino != status_.st_ino ? "was replaced by another file"
      : now.st_size != status_.st_size                               ? "became longer or shorter"
      : now.st_mtim.tv_sec != status_.st_mtim.tv_sec || now.st_mtim.tv_nsec != status_.st_mtim.tv_nsec
          ? "was written to"
          : nullptr;
  TRIREME_CHECK(change == nullptr, DataError, "{} {} while it was read: put it back as it was and run again", path_,
                change);
}

void MappedFile::release(std::span<const std::byte> range) const {
  const auto offset = static_cast<std::size_t>(range.data() - bytes_.data());
  const std::size_t begin = offset - offset % static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  madvise(const_cast<std::byte*>(bytes_.data()) + begin, offset + range.size() - begin, MADV_DONTNEED);
}

}  // namespace trireme::io
