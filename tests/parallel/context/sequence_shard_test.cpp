#include "src/parallel/context/sequence_shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/base/error.hpp"
#include "src/parallel/context/ring_attention.hpp"

namespace trireme::parallel {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> positions_of(const SequenceShard& shard) {
  std::vector<std::int64_t> positions;
  for (std::int64_t row = 0; row < shard.rows; ++row) positions.push_back(shard.positions[row]);
  return positions;
}

TEST(SequenceShard, ARankHoldsAChunkFromEachEnd) {
  EXPECT_THAT(positions_of(SequenceShard::of(12, 0, 2)), ElementsAre(0, 1, 2, 9, 10, 11));
  EXPECT_THAT(positions_of(SequenceShard::of(12, 1, 2)), ElementsAre(3, 4, 5, 6, 7, 8));
}

TEST(SequenceShard, ASequenceThatDoesNotDivideIsRefused) {
  EXPECT_THAT([] { SequenceShard::of(18, 0, 4); },
              testing::ThrowsMessage<ConfigError>(
                  testing::AllOf(testing::HasSubstr("<seq_length> 18 does not divide into 8 equal chunks"),
                                 testing::HasSubstr("it must be a multiple of 8"))));
}

TEST(Positions, PartsHaveThePositionsOfTheirRows) {
  const Positions positions{4, 3, 20};
  for (std::int64_t begin = 0; begin < 8; ++begin) {
    for (std::int64_t row = 0; row < 8; ++row) EXPECT_EQ(positions.from(begin)[row], positions[begin + row]);
  }
  EXPECT_EQ(Positions{7}.from(2)[5], 14);
}

TEST(RingAttention, EveryRankHasTheSameWorkInEveryStepAndAllOfItIsDone) {
  const std::int64_t chunk = 10;
  for (const auto& [causal, size] : {std::pair{true, 1}, {true, 2}, {true, 3}, {true, 8}, {false, 1}, {false, 4}}) {
    AttentionProblem problem;
    problem.queries = problem.keys = 2 * chunk;
    problem.causal = causal;
    std::set<std::pair<std::int64_t, std::int64_t>> seen;  // first query, first key
    for (int step = 0; step < size; ++step) {
      for (int rank = 0; rank < size; ++rank) {
        std::int64_t visible = 0;  // scores that are computed
        for (const auto& pair : RingAttention::pairs(problem, rank, (rank + size - step) % size, size)) {
          const AttentionProblem& p = pair.problem;
          EXPECT_EQ(p.results, AttentionResults::merge);
          EXPECT_TRUE(seen.emplace(p.first_query, p.first_key).second) << "twice";
          EXPECT_EQ(p.first_query, SequenceShard::of(2 * chunk * size, rank, size).positions[pair.query_chunk * chunk]);
          for (std::int64_t i = 0; i < p.queries; ++i) {
            for (std::int64_t j = 0; j < p.keys; ++j) visible += !causal || p.first_key + j <= p.first_query + i;
          }
        }
        const std::int64_t shard = !causal     ? 4 * chunk * chunk
                                   : step == 0 ? chunk * chunk + chunk * (chunk + 1)
                                               : 2 * chunk * chunk;
        EXPECT_EQ(visible, shard) << "rank " << rank << " of " << size << " in step " << step;
      }
    }
    EXPECT_EQ(std::ssize(seen), causal ? size * (2 * size + 1) : 4 * size * size) << "pairs that any query sees";
  }
}

}  // namespace
}  // namespace trireme::parallel
