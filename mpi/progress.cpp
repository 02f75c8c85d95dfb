#include "mpi/progress.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#include "mpi/error.hpp"
#include "src/base/check.hpp"
#include "src/base/signals.hpp"
#include "src/base/timer.hpp"

// Function of Open MPI 3 to 5, returns the value before; null with another MPI.
extern "C" __attribute__((weak)) bool opal_progress_set_yield_when_idle(bool yields);

namespace trireme::mpi {
namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

// Delay of the engine's thread before it first polls an operation without a waiting caller, and after a step. It
// doubles after each poll without progress. With 8 ranks on 2 cores a first delay of 200 us doubles the time of small
// all-reduces.
constexpr microseconds first_delay{1000};
constexpr microseconds next_delay{200};
constexpr microseconds max_delay{2000};
// The next step often follows soon: the thread keeps polling for this time.
constexpr microseconds linger{50};
// After a yield of this length, which was to a process that computes, threads sleep between polls for some time: where
// a yield forfeits the rest of a turn (Linux since 6.18), each of them costs milliseconds beside another process.
constexpr microseconds long_yield{1000};
constexpr std::chrono::milliseconds time_without_yields{500};
constexpr microseconds nap{20};

constexpr std::align_val_t alignment{64};

/// Lets other threads run, between two polls.
void give_way() {
  static std::atomic<Clock::rep> sleeps_until{Clock::duration::min().count()};
  const auto begin = Clock::now();
  if (begin.time_since_epoch().count() < sleeps_until) {
    std::this_thread::sleep_for(nap);
    return;
  }
  sched_yield();
  const auto end = Clock::now();
  if (end - begin > long_yield) sleeps_until = (end + time_without_yields).time_since_epoch().count();
}

/// Keeps Open MPI's own polls from yielding: the engine does so between its polls. For one thread at a time.
class PollsWithoutYields {
 public:
  PollsWithoutYields() : before_(set(false)) {}
  ~PollsWithoutYields() { set(before_); }
  PollsWithoutYields& operator=(PollsWithoutYields&&) = delete;

 private:
  static bool set(bool yields) {
    return opal_progress_set_yield_when_idle != nullptr && opal_progress_set_yield_when_idle(yields);
  }
  bool before_;
};

/// Adds the operation to the message of an MpiError.
std::exception_ptr with_context(const std::exception_ptr& failure, const std::string& description) {
  try {
    std::rethrow_exception(failure);
  } catch (const MpiError& error) {
    return std::make_exception_ptr(MpiError(fmt::format("{}, in {}", error.what(), description)));
  } catch (...) {
    return failure;
  }
}

}  // namespace

bool Operation::advance() {
  promise_type& promise = handle_.promise();
  try {
    if (promise.awaited != nullptr && !promise.awaited->test()) return false;
  } catch (...) {
    // The coroutine stays suspended; its waiting caller receives this failure.
    promise.failure = std::current_exception();
    return true;
  }
  promise.awaited = nullptr;
  handle_.resume();
  return true;
}

std::vector<int> Operation::awaited_ranks() const {
  const Messages* awaited = handle_.promise().awaited;
  return awaited == nullptr ? std::vector<int>() : awaited->awaited_ranks();
}

ProgressEngine::ProgressEngine() : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
  TRIREME_CHECK(timer_ >= 0, EnvironmentError, "timerfd_create failed: {}", std::strerror(errno));
  // Signals belong to the program's threads: a stop signal must not be handled here.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProgressEngine::~ProgressEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    set_timer(microseconds(1));
  }
  thread_.join();
  close(timer_);
  // MPI may still write to the receive buffer of an abandoned operation.
  for (std::shared_ptr<Entry>& entry : under_way_) new std::shared_ptr<Entry>(std::move(entry));
}

void ProgressEngine::set_timer(microseconds delay) {
  itimerspec when{};
  when.it_value.tv_nsec = std::chrono::nanoseconds(delay).count();
  timer_set_ = timerfd_settime(timer_, 0, &when, nullptr) == 0;
}

void ProgressEngine::check_usable() {
  if (!abandoned_) return;
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(hang_.empty(), HungError, "{}", hang_);
  throw MpiError("communication was abandoned after an earlier error of this rank");
}

std::shared_ptr<ProgressEngine::Entry> ProgressEngine::submit(Operation operation, std::string description) {
  check_usable();
  auto entry = std::make_shared<Entry>(std::move(operation), std::move(description));
  const std::lock_guard lock(mutex_);
  advance(*entry);
  if (!entry->finished) {
    under_way_.push_back(entry);
    if (!timer_set_) set_timer(first_delay);
  }
  return entry;
}

bool ProgressEngine::advance(Entry& entry) {
  const PollsWithoutYields without_yields;
  const bool moved = entry.operation->advance();
  if (entry.operation->finished()) {
    if (entry.operation->failure()) {
      entry.failure = with_context(entry.operation->failure(), entry.description);
      failed_.push_back(std::move(*entry.operation));
    }
    entry.operation.reset();
    entry.finished.store(true, std::memory_order_release);
  }
  return moved;
}

bool ProgressEngine::poll() {
  bool moved = false;
  std::erase_if(under_way_, [&](const std::shared_ptr<Entry>& entry) {
    moved = advance(*entry) || moved;
    return entry->finished.load();
  });
  return moved;
}

void ProgressEngine::wait(Entry& entry) {
  // The first tries use an otherwise idle core; afterwards another rank may need it.
  constexpr int tries_before_giving_way = 20;
  struct Waiting {
    explicit Waiting(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
    ~Waiting() { count_.fetch_sub(1); }
    std::atomic<int>& count_;
  } const waiting(waiting_);
  Patience patience(max_wait_s_);
  for (int tries = 0; !entry.finished.load(std::memory_order_acquire) && !abandoned_;) {
    bool moved = false;
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) moved = poll();
    if (moved) {
      tries = 0;
      patience.restart();
    } else if (++tries > tries_before_giving_way) {
      give_way();
      if (patience.over()) give_up(entry);
    }
  }
  if (!entry.finished) check_usable();
  if (entry.failure) std::rethrow_exception(entry.failure);
}

void ProgressEngine::give_up(Entry& entry) {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  if (entry.operation) ranks = entry.operation->awaited_ranks();
  hang_ = fmt::format("waiting for {:g} s in {} for {}", max_wait_s_.load(), entry.description,
                      ranks.empty() ? "other ranks" : ranks_text(ranks));
  throw HungError("{}", hang_);
}

void ProgressEngine::abandon() noexcept {
  abandoned_ = true;
  const std::lock_guard lock(mutex_);  // a step in progress ends first
}

void ProgressEngine::run() {
  use_alternate_signal_stack();
  microseconds delay = first_delay;
  while (true) {
    std::uint64_t expirations = 0;
    while (read(timer_, &expirations, sizeof expirations) < 0) {
    }
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    bool ever_moved = false;
    for (auto last_move = Clock::now(); waiting_ == 0 && !under_way_.empty() && !abandoned_;) {
      if (poll()) {
        ever_moved = true;
        last_move = Clock::now();
      } else if (!ever_moved || Clock::now() - last_move > linger) {
        break;
      }
      lock.unlock();
      give_way();
      lock.lock();
    }
    if (stopping_) return;
    timer_set_ = false;
    if (under_way_.empty() || abandoned_) {
      delay = first_delay;  // the next operation sets the timer
    } else {
      delay = ever_moved ? next_delay : std::min(2 * delay, max_delay);
      set_timer(delay);
    }
  }
}

void ProgressEngine::Scratch::Free::operator()(std::byte* data) const { ::operator delete(data, alignment); }

ProgressEngine::Scratch::Scratch(ProgressEngine& engine, std::size_t size_bytes) : engine_(engine) {
  auto& free = engine.free_buffers_;
  const auto fits = std::ranges::find_if(free, [&](const Buffer& buffer) { return buffer.size_bytes >= size_bytes; });
  if (fits != free.end()) {
    buffer_ = std::move(*fits);
    free.erase(fits);
  } else {
    buffer_ = {std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(::operator new(size_bytes, alignment))),
               size_bytes};
  }
}

ProgressEngine::Scratch::~Scratch() { engine_.free_buffers_.push_back(std::move(buffer_)); }

}  // namespace trireme::mpi
