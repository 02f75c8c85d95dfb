#include "src/comm/host_collectives.hpp"

#include <gmock/gmock.h>

#include "tests/support/mpi_world.hpp"

namespace trireme {
namespace {

struct Record {
  std::int64_t from;
  std::int32_t to;
  bool operator==(const Record&) const = default;
};

// Rank r has r + 2 t records for rank t: some have none.
TEST(AllToAll, DeliversToEachRankInRankOrder) {
  Communicator& comm = test::world();
  std::vector<std::vector<Record>> outgoing(static_cast<std::size_t>(comm.size()));
  for (int to = 0; to < comm.size(); ++to) {
    for (int i = 0; i < comm.rank() + 2 * to; ++i) {
      outgoing[static_cast<std::size_t>(to)].push_back({comm.rank() * 1000 + i, to});
    }
  }
  std::vector<Record> expected;
  for (int from = 0; from < comm.size(); ++from) {
    for (int i = 0; i < from + 2 * comm.rank(); ++i) expected.push_back({from * 1000 + i, comm.rank()});
  }
  EXPECT_EQ(all_to_all(comm, outgoing), expected);
}

TEST(AllToAll, GathersOneNumberPerRank) {
  Communicator& comm = test::world();
  std::vector<std::int64_t> expected;
  for (int rank = 0; rank < comm.size(); ++rank) expected.push_back((std::int64_t{1} << 40) + rank);
  EXPECT_EQ(all_gather_number(comm, (std::int64_t{1} << 40) + comm.rank()), expected);
}

}  // namespace
}  // namespace trireme
