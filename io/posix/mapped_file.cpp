#include "io/posix/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "io/posix/file.hpp"
#include "src/base/error.hpp"

namespace trireme::io {

/// Mapped range and the message for its failure.
struct MappedFile::Guard {
  std::atomic<const std::byte*> begin = nullptr;  // null if the guard is free
  std::atomic<std::size_t> size_bytes = 0;
  std::string message;
  Guard* next = nullptr;
};

namespace {

using Guard = MappedFile::Guard;

// Global, because a signal handler gets only the address. Guards are reused and never freed: the handler may read them
// at any time.
std::atomic<Guard*> guards = nullptr;
std::mutex changing;  // held while taking a guard
struct sigaction earlier {};

const Guard* guard_of(const std::byte* address) {
  for (const Guard* guard = guards.load(); guard != nullptr; guard = guard->next) {
    const std::byte* const begin = guard->begin.load();
    if (begin != nullptr && address >= begin && address < begin + guard->size_bytes.load()) return guard;
  }
  return nullptr;
}

/// Async-signal-safe.
void on_bus_error(int signal, siginfo_t* fault, void*) {
  const bool is_sent = fault->si_code <= 0;  // another process sent it
  const Guard* const guard = is_sent ? nullptr : guard_of(static_cast<const std::byte*>(fault->si_addr));
  if (guard != nullptr) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, guard->message.data(), guard->message.size());
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

Guard* free_guard() {
  for (Guard* guard = guards.load(); guard != nullptr; guard = guard->next) {
    if (guard->begin.load() == nullptr) return guard;
  }
  auto* const guard = new Guard;
  guard->next = guards.load();
  if (guard->next == nullptr) install_handler();
  guards.store(guard);
  return guard;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TRIREME_CHECK(file && fstat(file.get(), &status_) == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
  if (status_.st_size == 0) return;
  const auto size_bytes = static_cast<std::size_t>(status_.st_size);
  void* address = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  TRIREME_CHECK(address != MAP_FAILED, IoError, "cannot map the {} bytes of {} into memory: {}", size_bytes, path,
                std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size_bytes};
  const std::lock_guard lock(changing);
  guard_ = free_guard();
  guard_->message = "trireme: " + path +
                    " was truncated, or its disk failed, while it was read: put it back as it was and run again\n";
  guard_->size_bytes.store(bytes_.size());
  guard_->begin.store(bytes_.data());
}

MappedFile::~MappedFile() {
  if (guard_ == nullptr) return;
  guard_->begin.store(nullptr);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
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
