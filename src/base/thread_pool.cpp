#include "src/base/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/check.hpp"
#include "src/base/signals.hpp"

namespace trireme {

namespace {
void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
// Kernels follow each other within microseconds: a short spin saves most wake-ups, and sleeping afterwards yields the
// core to the machine's other ranks.
constexpr int spins_before_sleep = 2000;
constexpr std::uint64_t remaining_mask = 0xffffffffu;
}  // namespace

struct ThreadPool::State {
  // `ticket` holds the job's generation (high half) and its remaining tasks (low half). A worker takes one by
  // compare-and-swap. On success it may read the job's fields, since the job cannot end before that task does. A worker
  // that wakes late takes nothing, and the job does not wait for it.
  std::atomic<std::uint64_t> ticket{0};
  std::atomic<std::int64_t> unfinished{0};
  std::int64_t count = 0;
  TaskPointer task = nullptr;
  void* context = nullptr;

  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_done;
  int sleepers = 0;            // guarded by mutex
  std::exception_ptr failure;  // guarded by mutex
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  bool has_work() const { return (ticket.load(std::memory_order_acquire) & remaining_mask) != 0; }

  void take_tasks() {
    for (std::uint64_t seen = ticket.load(std::memory_order_acquire); (seen & remaining_mask) != 0;) {
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      try {
        task(context, count - static_cast<std::int64_t>(seen & remaining_mask));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        work_done.notify_all();
      }
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  /// Ends the workers.
  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work_ready.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void work() {
    use_alternate_signal_stack();
    while (!stopping) {
      for (int spin = 0; spin < spins_before_sleep && !has_work(); ++spin) pause_briefly();
      if (!has_work()) {
        std::unique_lock lock(mutex);
        ++sleepers;
        work_ready.wait(lock, [&] { return has_work() || stopping; });
        --sleepers;
      }
      take_tasks();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  TRIREME_CHECK(threads >= 1, ConfigError, "a thread pool needs at least one thread, not {}", threads);
  try {
    for (int i = 1; i < threads; ++i) state_->workers.emplace_back([state = state_.get()] { state->work(); });
  } catch (const std::system_error& error) {
    const std::size_t started = state_->workers.size();
    state_->stop();
    throw EnvironmentError(
        "{} of {} threads could be started: {}. Raise ulimit -u or -v, or set TRIREME_THREADS to a lower number",
        started + 1, threads, error.what());
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t count, TaskPointer task, void* context) {
  State& state = *state_;
  state.count = count;
  state.task = task;
  state.context = context;
  state.unfinished = count;
  const std::uint64_t generation = (state.ticket.load() >> 32) + 1;
  state.ticket.store(generation << 32 | static_cast<std::uint64_t>(count), std::memory_order_release);
  {
    const std::lock_guard lock(state.mutex);
    if (state.sleepers > 0) state.work_ready.notify_all();
  }
  state.take_tasks();
  for (int spin = 0; spin < spins_before_sleep && state.unfinished.load(std::memory_order_acquire) != 0; ++spin) {
    pause_briefly();
  }
  std::unique_lock lock(state.mutex);
  state.work_done.wait(lock, [&] { return state.unfinished.load(std::memory_order_acquire) == 0; });
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

int cores_of_rank(int ranks_sharing_cores) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0
                         ? CPU_COUNT(&cores)
                         : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, usable / std::max(1, ranks_sharing_cores));
}

int default_thread_count(int ranks_sharing_cores) {
  for (const char* name : {"TRIREME_THREADS", "OMP_NUM_THREADS"}) {
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0') {
      char* end = nullptr;
      const long threads = std::strtol(text, &end, 10);
      TRIREME_CHECK(*end == '\0' && threads >= 1 && threads <= 4096, ConfigError,
                    "{}={} is not a number of threads: give one from 1 to 4096 or unset it", name, text);
      return static_cast<int>(threads);
    }
  }
  return cores_of_rank(ranks_sharing_cores);
}

}  // namespace trireme
