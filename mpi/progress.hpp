#pragma once

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mpi/messages.hpp"

namespace trireme::mpi {

/// A communication as a coroutine: it issues messages and `co_await`s them. It runs only inside a ProgressEngine: one
/// step at a time, on any thread that drives the engine.
class Operation {
 public:
  struct promise_type {
    Messages* awaited = nullptr;
    std::exception_ptr failure;
    Operation get_return_object() { return Operation(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { failure = std::current_exception(); }

    struct Awaiter {
      promise_type& promise;
      Messages& messages;
      bool await_ready() { return messages.test(); }
      void await_suspend(std::coroutine_handle<>) noexcept { promise.awaited = &messages; }
      void await_resume() noexcept {}
    };
    Awaiter await_transform(Messages& messages) { return {*this, messages}; }
  };

  Operation(Operation&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

  ~Operation() {
    if (handle_) handle_.destroy();
  }

  /// Runs until it awaits incomplete messages. Returns whether at least one step was taken.
  bool advance();
  /// Complete or failed.
  bool finished() const { return handle_.done() || handle_.promise().failure; }
  std::exception_ptr failure() const { return handle_.promise().failure; }
  /// World ranks whose messages it awaits, as reported by MPI.
  std::vector<int> awaited_ranks() const;

 private:
  explicit Operation(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

/// Drives the operations of a rank. A thread that waits for one drives them all; otherwise the engine's thread does, so
/// communication overlaps with the caller's computation. Only a timer wakes that thread, while operations are in
/// flight. Ranks often outnumber cores: a wake-up per operation would cost more than an operation that the caller waits
/// for immediately.
class ProgressEngine {
 public:
  ProgressEngine();
  ~ProgressEngine();
  ProgressEngine& operator=(ProgressEngine&&) = delete;

  /// An operation in flight.
  struct Entry {
    Entry(Operation started, std::string text) : operation(std::move(started)), description(std::move(text)) {}
    std::optional<Operation> operation;  // guarded by the engine's mutex; empty when finished
    std::atomic<bool> finished{false};
    std::exception_ptr failure;  // valid when finished
    std::string description;
  };

  /// Starts an operation: its first messages are issued before this returns. `description` is for messages: "an
  /// all-reduce of the group data".
  std::shared_ptr<Entry> submit(Operation operation, std::string description);
  /// Blocks until `entry` is finished; throws its error, or HungError if no operation has progressed for the maximum
  /// wait, in this thread or another.
  void wait(Entry& entry);
  /// 0, the default: no limit.
  void set_max_wait(double seconds) { max_wait_s_ = seconds; }
  double max_wait_s() const { return max_wait_s_; }
  /// Abandons all operations without further MPI calls: for a rank that exits on an error and cannot wait for the
  /// others. Operations in flight stay unfinished, and their memory is not freed.
  void abandon() noexcept;
  bool abandoned() const { return abandoned_; }

  /// Message buffers of one operation, reused by later ones. Only for use by operations.
  class Scratch {
   public:
    Scratch(ProgressEngine& engine, std::size_t size_bytes);
    ~Scratch();
    Scratch& operator=(Scratch&&) = delete;
    std::byte* data() const { return buffer_.data.get(); }

   private:
    friend class ProgressEngine;
    struct Free {
      void operator()(std::byte* data) const;
    };
    struct Buffer {
      std::unique_ptr<std::byte, Free> data;
      std::size_t size_bytes = 0;
    };
    ProgressEngine& engine_;
    Buffer buffer_;
  };

 private:
  bool poll();                 // requires mutex_; returns whether anything progressed
  bool advance(Entry& entry);  // requires mutex_; returns whether the operation progressed
  void run();
  void set_timer(std::chrono::microseconds delay);  // requires mutex_
  void check_usable();  // throws once operations are abandoned: HungError if for a hang, even of another thread
  [[noreturn]] void give_up(Entry& entry);

  std::mutex mutex_;  // guards everything below except the atomics, and all steps of operations
  std::vector<Scratch::Buffer> free_buffers_;
  std::vector<std::shared_ptr<Entry>> under_way_;
  std::vector<Operation> failed_;  // kept, since MPI may still write into their memory
  std::string hang_;               // the message of the last hang; empty: none
  int timer_ = -1;                 // file descriptor
  bool timer_set_ = false;
  bool stopping_ = false;
  std::atomic<int> waiting_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<double> max_wait_s_{0};
  std::thread thread_;  // last: it uses the members above
};

}  // namespace trireme::mpi
