#include "mpi/node.hpp"

#include <gtest/gtest.h>

#include <sched.h>
#include <cstdlib>

#include "tests/support/mpi_world.hpp"

namespace trireme::mpi {
namespace {

using test::world;

TEST(NodeLocation, CountsTheRanksOfThisMachine) {
  const NodeLocation location = find_node_location(world());
  EXPECT_EQ(location.local_rank, world().rank());
  EXPECT_EQ(location.local_size, world().size());
  EXPECT_EQ(location.first_rank, 0);
}

TEST(NodeLocation, RanksOnDifferentCoresDoNotShare) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "needs two cores";
  // Even ranks on the first core, odd ones on the second, the last rank on all.
  int cores[2] = {-1, -1};
  for (int core = 0; core < CPU_SETSIZE && cores[1] < 0; ++core) {
    if (CPU_ISSET(core, &before)) cores[cores[0] < 0 ? 0 : 1] = core;
  }
  const int last = world().size() - 1;
  if (world().rank() != last) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[world().rank() % 2], &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  const NodeLocation location = find_node_location(world());
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  int sharing = 1;  // the last rank, or this one if it is the last
  for (int rank = 0; rank < last; ++rank) {
    sharing += world().rank() == last || rank % 2 == world().rank() % 2 ? 1 : 0;
  }
  EXPECT_EQ(location.ranks_sharing_cores, sharing);
}

TEST(MpiEnvironment, SetsUpCudaBeforeMpiStarts) { EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32"); }

}  // namespace
}  // namespace trireme::mpi
