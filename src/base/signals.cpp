#include "src/base/signals.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "src/base/check.hpp"

namespace trireme {
namespace {

class AlternateStack {
 public:
  AlternateStack() {
    stack_t present{};
    if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) == 0) return;
    // The frame alone takes 11 KiB if AMX is in use.
    constexpr long min_bytes = 65536;
    size_ = static_cast<std::size_t>(std::max(min_bytes, sysconf(_SC_SIGSTKSZ)));
    data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    stack_t own{};
    own.ss_sp = data_;
    own.ss_size = size_;
    TRIREME_CHECK(data_ != MAP_FAILED && sigaltstack(&own, nullptr) == 0, EnvironmentError,
                  "a thread gets no stack of {} bytes for signals: {}", size_, std::strerror(errno));
  }
  ~AlternateStack() {
    if (data_ == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(data_, size_);
  }
  AlternateStack& operator=(AlternateStack&&) = delete;

 private:
  void* data_ = MAP_FAILED;
  std::size_t size_ = 0;
};

}  // namespace

void use_alternate_signal_stack() {
  thread_local const AlternateStack stack;
  static_cast<void>(stack);
}

void move_handlers_to_alternate_stacks() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;  // the C library reserves some
    const bool handled = (action.sa_flags & SA_SIGINFO) != 0 ||
                         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);  // NOLINT: C's casts
    if (!handled || (action.sa_flags & SA_ONSTACK) != 0) continue;
    action.sa_flags |= SA_ONSTACK;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace trireme
