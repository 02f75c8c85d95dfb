#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace trireme {

/// The single thread pool of a rank. A job is a number of tasks independent of the number of threads. Each task
/// computes the same bits on any thread, so results are also independent of the threads.
class ThreadPool {
 public:
  /// `threads` includes the caller: with 1 everything runs on the calling thread. Throws EnvironmentError if a thread
  /// cannot be created.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool& operator=(ThreadPool&&) = delete;

  int threads() const;

  /// Calls `task(i)` once for every i in [0, count), on any thread in any order, and returns when all are done.
  /// An exception of a task is rethrown here, after the others have run. Not to be called from within a task; `count`
  /// is below 2^32.
  template <class Task>
  void parallel_for(std::int64_t count, Task&& task) {
    using Function = std::remove_reference_t<Task>;
    void* context = const_cast<std::remove_const_t<Function>*>(std::addressof(task));
    if (count == 1 || (threads() == 1 && count > 0)) {
      for (std::int64_t i = 0; i < count; ++i) call<Function>(context, i);
    } else if (count > 0) {
      run(count, call<Function>, context);
    }
  }

  /// Splits [0, size) into ranges of `grain` (the last one shorter) and calls `task(begin, end)` for each.
  template <class Task>
  void parallel_ranges(std::int64_t size, std::int64_t grain, Task&& task) {
    parallel_for((size + grain - 1) / grain,
                 [&](std::int64_t i) { task(i * grain, size < (i + 1) * grain ? size : (i + 1) * grain); });
  }

 private:
  using TaskPointer = void (*)(void*, std::int64_t);
  /// The only copy of a task's code. Inlined copies may fuse multiplications and additions differently, and one thread
  /// would then compute other bits than several.
  template <class Function>
  [[gnu::noinline]] static void call(void* context, std::int64_t i) {
    (*static_cast<Function*>(context))(i);
  }
  void run(std::int64_t count, TaskPointer task, void* context);
  struct State;
  std::unique_ptr<State> state_;
};

/// Cores that this process may run on, divided among the ranks that share them; at least 1.
int cores_of_rank(int ranks_sharing_cores);

/// Threads a rank may use: `TRIREME_THREADS`, else `OMP_NUM_THREADS`, else the cores the process may run on divided by
/// the ranks that may run on the same cores (at least 1). Throws ConfigError if a variable is not a number.
int default_thread_count(int ranks_sharing_cores);

}  // namespace trireme
