#include "src/base/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/signals.hpp"

namespace trireme {
namespace {

thread_local std::uintptr_t handler_frame = 0;

extern "C" void note_frame(int) { handler_frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

TEST(ThreadPool, ItsThreadsRunHandlersOnAlternateStacks) {
  struct sigaction before {};
  struct sigaction action {};
  action.sa_handler = note_frame;  // some libraries ask for no alternate stack
  sigaction(SIGUSR2, &action, &before);
  move_handlers_to_alternate_stacks();
  use_alternate_signal_stack();
  ThreadPool pool(3);
  std::atomic<int> waiting{0};
  pool.parallel_for(3, [&](std::int64_t) {
    for (++waiting; waiting < 3;) {  // each thread has one task
    }
    stack_t alternate{};
    sigaltstack(nullptr, &alternate);
    std::raise(SIGUSR2);
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(alternate.ss_sp);
    EXPECT_TRUE(handler_frame > begin && handler_frame < begin + alternate.ss_size);
  });
  sigaction(SIGUSR2, &before, nullptr);
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(count);
      pool.parallel_for(count, [&](std::int64_t i) { ++runs[i]; });
      for (const auto& n : runs) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, FailureToStartItsThreadsIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  rlimit small = before;
  small.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGE_SIZE)) + (rlim_t{64} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &small), 0);
  EXPECT_THROW(ThreadPool(1000), EnvironmentError);
  setrlimit(RLIMIT_AS, &before);
}

TEST(ThreadPool, SurvivesManyShortJobs) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  for (int job = 0; job < 20'000; ++job) pool.parallel_for(4, [&](std::int64_t i) { sum += i; });
  EXPECT_EQ(sum, 20'000 * 6);
}

TEST(ThreadPool, RethrowsAnExceptionAndStaysUsable) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(10,
                                 [](std::int64_t i) {
                                   if (i == 7) throw std::runtime_error("seven");
                                 }),
               std::runtime_error);
  std::atomic<int> runs{0};
  pool.parallel_for(10, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

}  // namespace
}  // namespace trireme
