// Numbers of messages that a rank sends, which is what stops jobs of thousands of ranks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <atomic>
#include <bit>
#include <set>
#include <vector>

#include "tests/support/mpi_world.hpp"

namespace {
std::atomic<int> sent{0};
std::set<int> peers;  // written during an operation of the test below
}  // namespace

// Replaces MPI's own in this program; PMPI_ is the standard's name for tools.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  ++sent;
  peers.insert(peer);
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

namespace trireme {
namespace {

using test::world;

/// Messages that this rank sends, and ranks to which it sends, in `operation`.
template <class Function>
std::array<int, 2> counted(Function operation) {
  sent = 0;
  peers.clear();
  operation();
  return {sent.load(), static_cast<int>(peers.size())};
}

TEST(SmallOperations, SendLogarithmicallyManyMessages) {
  if (world().size() <= 8) GTEST_SKIP() << "needs more than 8 ranks";
  const int steps = std::bit_width(static_cast<unsigned>(world().size() - 1));
  const std::array<int, 2> most = {steps, steps};
  ImmediateStream host;
  std::int64_t value = world().rank();
  std::vector<std::int64_t> values(static_cast<std::size_t>(world().size()));
  const TensorView one(&value, {1}), all(values.data(), {world().size()});
  EXPECT_EQ(counted([&] { world().all_gather(host, one, all).wait(host); }), most);
  EXPECT_EQ(counted([&] { world().all_reduce(host, one, ReduceOp::sum).wait(host); }), most);
  EXPECT_EQ(counted([&] { collectively(world(), [] {}); }), most);
  EXPECT_EQ(counted([&] { check_same_everywhere(world(), "the configuration", "seed 1"); }), most);
}

}  // namespace
}  // namespace trireme
