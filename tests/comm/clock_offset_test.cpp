#include "src/comm/clock_offset.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/timer.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme {
namespace {

// The ranks are processes of one machine, whose clock is one: the test adds the offsets.
TEST(ClockOffset, IsFoundWithinItsBound) {
  Communicator& world = test::world();
  const double seconds_behind = 100.0 * world.rank();
  const auto now_us = [&] {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count() -
           1e6 * seconds_behind;
  };
  const ClockOffset offset = measure_clock_offset(world, now_us);
  EXPECT_LE(std::abs(offset.us - 1e6 * seconds_behind), offset.error_us + 0.1) << "rank " << world.rank();
  EXPECT_LT(offset.error_us, 1e6) << "a round trip takes less than two seconds";
}

}  // namespace
}  // namespace trireme
