#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/file_handle.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  TRIREME_CHECK(file && fstat(file.get(), &status) == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
  if (status.st_size == 0) return;
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  void* address = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  TRIREME_CHECK(address != MAP_FAILED, IoError, "cannot map the {} bytes of {} into memory: {}", size_bytes, path,
                std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size_bytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto offset = static_cast<std::size_t>(part.data() - bytes_.data());
  const std::size_t begin = offset - offset % static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  madvise(const_cast<std::byte*>(bytes_.data()) + begin, offset + part.size() - begin, MADV_DONTNEED);
}

}  // namespace trireme::io
