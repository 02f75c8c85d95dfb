// Waits of ranks beside busy processes. sched_yield of this program may be one that forfeits a turn, as of Linux
// since 6.18.
#include "mpi/progress.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/mpi_world.hpp"

namespace {
std::atomic<bool> forfeits = false;
std::atomic<int> forfeited = 0;
}  // namespace

extern "C" int sched_yield() noexcept {
  if (!forfeits) return static_cast<int>(syscall(SYS_sched_yield));
  ++forfeited;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return 0;
}

namespace trireme::mpi {
namespace {

using test::world;

TEST(Waits, AYieldThatForfeitsATurnIsFollowedBySleeps) {
  if (world().size() < 2) GTEST_SKIP() << "needs two ranks";
  world().barrier();
  forfeits = true;
  if (world().rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  world().barrier();
  forfeits = false;
  EXPECT_LE(forfeited, 3) << "of 150 in this time";
}

}  // namespace
}  // namespace trireme::mpi
