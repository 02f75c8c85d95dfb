#include "mpi/progress.hpp"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "mpi/error.hpp"
#include "src/base/check.hpp"

namespace trireme::mpi {
namespace {

using std::chrono::microseconds;

// The engine's thread looks again after this long: doubled each time in vain, shortest after a step.
constexpr microseconds shortest_nap{50};
constexpr microseconds longest_nap{400};

constexpr std::align_val_t alignment{64};

}  // namespace

bool Operation::advance() {
  promise_type& promise = handle_.promise();
  try {
    if (promise.awaited != nullptr && !promise.awaited->test()) return false;
  } catch (...) {
    // Tested on behalf of the coroutine, which stays suspended for ever: to the one who waits it has failed.
    promise.failure = std::current_exception();
    return true;
  }
  promise.awaited = nullptr;
  handle_.resume();
  return true;
}

ProgressEngine::ProgressEngine() {
  // Signals are for the threads of the program: one that stops it politely must not be taken here.
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
  }
  wake_.notify_one();
  thread_.join();
  // MPI may still write where an abandoned operation receives.
  for (std::shared_ptr<Entry>& entry : under_way_) new std::shared_ptr<Entry>(std::move(entry));
}

void ProgressEngine::check_usable() const {
  TRIREME_CHECK(!abandoned_, MpiError, "communication was given up because of an earlier error of this rank");
}

std::shared_ptr<ProgressEngine::Entry> ProgressEngine::submit(Operation operation) {
  check_usable();
  auto entry = std::make_shared<Entry>(std::move(operation));
  const std::lock_guard lock(mutex_);
  advance(*entry);
  if (!entry->finished) {
    under_way_.push_back(entry);
    if (asleep_) wake_.notify_one();
  }
  return entry;
}

bool ProgressEngine::advance(Entry& entry) {
  const bool moved = entry.operation->advance();
  if (entry.operation->finished()) {
    entry.failure = entry.operation->failure();
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
  // The first tries cost nothing but time of an idle core; after them another rank may want the core.
  constexpr int tries_before_yield = 20;
  waiting_.fetch_add(1);
  int tries = 0;
  while (!entry.finished.load(std::memory_order_acquire) && !abandoned_) {
    bool moved = false;
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) moved = poll();
    if (moved) {
      tries = 0;
    } else if (++tries > tries_before_yield) {
      sched_yield();
    }
  }
  waiting_.fetch_sub(1);
  if (!entry.finished) check_usable();
  if (entry.failure) std::rethrow_exception(entry.failure);
}

void ProgressEngine::abandon() noexcept {
  abandoned_ = true;
  const std::lock_guard lock(mutex_);  // a step under way ends first
}

void ProgressEngine::run() {
  std::unique_lock lock(mutex_);
  microseconds nap = shortest_nap;
  while (!stopping_) {
    if (under_way_.empty() || abandoned_) {
      asleep_ = true;
      wake_.wait(lock, [&] { return stopping_ || (!under_way_.empty() && !abandoned_); });
      asleep_ = false;
      nap = shortest_nap;
    }
    // Mostly the caller is just about to wait for what it has started; then there is nothing to do here.
    lock.unlock();
    std::this_thread::sleep_for(nap);
    lock.lock();
    const bool moved = waiting_ == 0 && !abandoned_ && poll();
    nap = moved ? shortest_nap : std::min(2 * nap, longest_nap);
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
