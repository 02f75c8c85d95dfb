#include "io/posix/mapping_guard.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

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

}  // namespace trireme::io
