#include "io/posix/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include "io/posix/file.hpp"
#include "src/base/check.hpp"
#include "src/base/error.hpp"

namespace trireme::io {

struct MappingGuard::Range {
  std::atomic<const std::byte*> begin = nullptr;  // null if the range is free
  std::atomic<std::size_t> size_bytes = 0;
  std::string message;
  Range* next = nullptr;
};

namespace {

using Range = MappingGuard::Range;

// Global, because a signal handler gets only the address. Ranges are reused and never freed: the handler may read them
// at any time.
std::atomic<Range*> ranges = nullptr;
std::mutex changing;  // held while taking a range
struct sigaction earlier {};

const Range* range_of(const std::byte* address) {
  for (const Range* range = ranges.load(); range != nullptr; range = range->next) {
    const std::byte* const begin = range->begin.load();
    if (begin != nullptr && address >= begin && address < begin + range->size_bytes.load()) return range;
  }
  return nullptr;
}

/// Async-signal-safe.
void on_bus_error(int signal, siginfo_t* fault, void*) {
  const bool is_sent = fault->si_code <= 0;  // another process sent it
  const Range* const range = is_sent ? nullptr : range_of(static_cast<const std::byte*>(fault->si_addr));
  if (range != nullptr) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, range->message.data(), range->message.size());
    _exit(static_cast<int>(ExitCode::data));
  }
  sigaction(signal, &earlier, nullptr);
  if (is_sent) raise(signal);  // a fault recurs by itself
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &earlier);
}

Range* free_range() {
  for (Range* range = ranges.load(); range != nullptr; range = range->next) {
    if (range->begin.load() == nullptr) return range;
  }
  auto* const range = new Range;
  range->next = ranges.load();
  if (range->next == nullptr) install_handler();
  ranges.store(range);
  return range;
}

}  // namespace

MappingGuard::MappingGuard(const std::string& path, std::span<const std::byte> bytes) {
  const std::lock_guard lock(changing);
  range_ = free_range();
  range_->message = "trireme: " + path +
                    " was truncated, or its disk failed, while it was read: put it back as it was and run again\n";
  range_->size_bytes.store(bytes.size());
  range_->begin.store(bytes.data());
}

MappingGuard::~MappingGuard() { range_->begin.store(nullptr); }

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
