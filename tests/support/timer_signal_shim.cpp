// Library for LD_PRELOAD. Interrupts the program 1,000 times a second. Like those of some profilers, its handler does
// not request an alternate stack, and writes to the current one. Without one, code that uses the stack pointer as a
// general register crashes. Writes the number of interrupts at the end to the file TRIREME_TIMER_COUNT.
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> interruptions{0};

extern "C" void on_timer(int) {
  char frame[2048];
  std::memset(frame, 0x5a, sizeof frame);
  __asm__ volatile("" : : "r"(frame) : "memory");  // the write is not removed
  interruptions.fetch_add(1, std::memory_order_relaxed);
}

struct Timer {
  Timer() {
    struct sigaction action {};
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    itimerval interval{{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &interval, nullptr);
  }
  ~Timer() {
    itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    const char* path = std::getenv("TRIREME_TIMER_COUNT");
    if (path == nullptr) return;
    if (std::FILE* file = std::fopen(path, "w")) {
      std::fprintf(file, "%ld\n", interruptions.load());
      std::fclose(file);
    }
  }
} timer;

}  // namespace
