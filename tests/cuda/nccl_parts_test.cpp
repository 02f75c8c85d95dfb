// Parts of NcclCommunicator that call no NCCL: the choice of algorithms, multiprocessors, GPUs and message lanes.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "cuda/nccl/algorithms.hpp"
#include "cuda/nccl/gpu_table.hpp"
#include "cuda/nccl/nccl_communicator.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::cuda {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(NcclAlgorithms, AllowSumsOfNoFixedOrderUnlessAllFourAreExcluded) {
  for (const char* fixed : {"Ring", "ring,TREE", "Tree,PAT", "^NVLS,NVLSTree,CollNetDirect,CollNetChain",
                            "^collnetchain,collnetdirect,nvlstree,nvls,PAT"}) {
    EXPECT_FALSE(allows_unordered_sums(fixed)) << fixed;
  }
  for (const char* varying : {"NVLS", "Ring,nvlstree", "^NVLS", "^Ring", "CollNetDirect", "allreduce:ring"}) {
    EXPECT_TRUE(allows_unordered_sums(varying)) << varying;
  }
}

TEST(NcclAlgorithms, AreForbiddenUnlessTheUserAsksForThem) {
  unsetenv("NCCL_ALGO");
  forbid_unordered_sums();
  EXPECT_FALSE(allows_unordered_sums(std::getenv("NCCL_ALGO")));
  setenv("NCCL_ALGO", "Ring", 1);
  forbid_unordered_sums();
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  setenv("NCCL_ALGO", "NVLS,Ring", 1);
  EXPECT_THAT(message_of<ConfigError>(forbid_unordered_sums), HasSubstr("NCCL_ALGO=NVLS,Ring allows sums"));
  unsetenv("NCCL_ALGO");
}

TEST(Multiprocessors, HalfOfThemStayWithProducts) {
  Multiprocessors small(20);
  const Multiprocessors::Token reserved = small.reserve(16), collective = small.begin_collective();
  EXPECT_EQ(small.for_product(), 10);
}

TEST(GpuTable, NamesTheRanksThatShareAGpu) {
  const RankGpu first{"node1", "aa", "GPU 0 (H200)"}, second{"node1", "bb", "GPU 1 (H200)"},
      other{"node2", "aa", "GPU 0 (H200)"};
  EXPECT_NO_THROW(check_one_rank_a_gpu({first, second, other}));
  EXPECT_THAT(message_of<EnvironmentError>([&] {
                check_one_rank_a_gpu({first, second, first, other, first, second});
              }),
              AllOf(HasSubstr("more ranks than GPUs: ranks 0, 2, 4 have GPU 0 (H200) of node1; ranks 1, 5 have GPU 1 "
                              "(H200) of node1."),
                    HasSubstr("<communicator> staged")));
}

TEST(P2pCommunicators, ConnectNeighboursOnceInEachDirection) {
  for (int size = 2; size <= 9; ++size) {
    std::vector<std::vector<P2pSplit>> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(p2p_splits(rank, size));
    std::map<std::pair<int, int>, int> joined;  // (sender, receiver)
    for (std::size_t split = 0; split < ranks[0].size(); ++split) {
      std::map<int, std::vector<int>> members;
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_EQ(ranks[static_cast<std::size_t>(rank)].size(), ranks[0].size());
        const int colour = ranks[static_cast<std::size_t>(rank)][split].colour;
        if (colour >= 0) members[colour].push_back(rank);
      }
      for (const auto& [colour, pair] : members) {
        ASSERT_EQ(pair.size(), 2u) << "of " << size << ", split " << split << ", colour " << colour;
        const P2pSplit& a = ranks[static_cast<std::size_t>(pair[0])][split];
        const P2pSplit& b = ranks[static_cast<std::size_t>(pair[1])][split];
        EXPECT_EQ(a.peer, pair[1]);
        EXPECT_EQ(b.peer, pair[0]);
        EXPECT_NE(a.sends, b.sends);
        EXPECT_EQ(a.key, a.sends ? 0 : 1);
        EXPECT_EQ(b.key, b.sends ? 0 : 1);
        ++joined[a.sends ? std::pair(pair[0], pair[1]) : std::pair(pair[1], pair[0])];
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ((joined[{rank, (rank + 1) % size}]), 1) << size;
      EXPECT_EQ((joined[{(rank + 1) % size, rank}]), 1) << size;
    }
    EXPECT_EQ(joined.size(), size == 2 ? 2u : 2u * static_cast<std::size_t>(size));
  }
}

}  // namespace
}  // namespace trireme::cuda
