#include "src/data/dataset/split.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/fakes/memory_token_store.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;

MemoryTokenStore store_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<std::int32_t>> documents;
  for (const std::size_t size : sizes) documents.emplace_back(size, 1);
  CorpusInfo info;
  info.vocabulary_size = 2;
  return {info, documents};
}

/// Tokens [begin, end) of each document of the split.
std::vector<std::pair<std::int64_t, std::int64_t>> documents(const TokenStore& store, Split split,
                                                             const std::string& fractions, SplitBy by) {
  const DocumentRange range = documents_of(store, split, parse_split(fractions), by);
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  std::int64_t tokens = 0;
  for (std::int64_t d = 0; d < range.documents; ++d) {
    result.emplace_back(range.begin(d), range.end(d));
    tokens += range.end(d) - range.begin(d);
  }
  EXPECT_EQ(tokens, range.tokens());
  return result;
}

TEST(Split, BoundariesAreTheRoundedCumulativeShares) {
  EXPECT_THAT(split_boundaries(parse_split("1,1,1"), 10), ElementsAre(0, 3, 7, 10));
  EXPECT_THAT(split_boundaries(parse_split("90,5,5"), 7), ElementsAre(0, 6, 7, 7));
  EXPECT_THAT(split_boundaries(parse_split("969, 30, 1"), 1000), ElementsAre(0, 969, 999, 1000));
  EXPECT_THAT(split_boundaries(parse_split("969,30,1"), 1234), ElementsAre(0, 1196, 1233, 1234));
  EXPECT_THAT(split_boundaries(parse_split("1/1"), 5), ElementsAre(0, 2, 5, 5));  // 2.5 to the even 2
  EXPECT_THAT(split_boundaries(parse_split("3"), 5), ElementsAre(0, 5, 5, 5));
  EXPECT_THAT(split_boundaries(parse_split("0.9,0,0.1"), 10), ElementsAre(0, 9, 9, 10));
}

TEST(Split, RefusesWhatIsNotUpToThreeNumbers) {
  for (const char* text : {"", "0,0,0", "1,2,3,4", "1,-2", "a", "1,", "1;2", "nan", "inf,1", "1 2", "1e308,1e308"}) {
    EXPECT_THROW(parse_split(text), ConfigError) << text;
  }
}

TEST(Split, ByDocumentsKeepsThemWhole) {
  const MemoryTokenStore store = store_of({5, 9, 2, 14, 7});
  EXPECT_THAT(documents(store, Split::train, "3,1,1", SplitBy::documents),
              ElementsAre(std::pair(0, 5), std::pair(5, 14), std::pair(14, 16)));
  EXPECT_THAT(documents(store, Split::valid, "3,1,1", SplitBy::documents), ElementsAre(std::pair(16, 30)));
  EXPECT_THAT(documents(store, Split::test, "3,1,1", SplitBy::documents), ElementsAre(std::pair(30, 37)));
  EXPECT_THAT(documents(store, Split::test, "1,0,0", SplitBy::documents), ElementsAre());
}

TEST(Split, ByTokensCutsDocumentsInTwo) {
  const MemoryTokenStore store = store_of({10, 0, 20, 10});
  EXPECT_THAT(documents(store, Split::train, "2,1,1", SplitBy::tokens),
              ElementsAre(std::pair(0, 10), std::pair(10, 10), std::pair(10, 20)));
  EXPECT_THAT(documents(store, Split::valid, "2,1,1", SplitBy::tokens), ElementsAre(std::pair(20, 30)));
  EXPECT_THAT(documents(store, Split::test, "2,1,1", SplitBy::tokens), ElementsAre(std::pair(30, 40)));
  const MemoryTokenStore one = store_of({100});
  EXPECT_THAT(documents(one, Split::valid, "90,9,1", SplitBy::tokens), ElementsAre(std::pair(90, 99)));
  EXPECT_THAT(documents(one, Split::test, "1", SplitBy::tokens), ElementsAre());
}

TEST(Split, CutsInsideTheDocumentsOfACorpusOfFew) {
  EXPECT_THAT(documents(store_of(std::vector<std::size_t>(99, 10)), Split::test, "99,0.5,0.5", SplitBy::automatic),
              ElementsAre(std::pair(985, 990)));
  EXPECT_THAT(documents(store_of(std::vector<std::size_t>(100, 10)), Split::test, "98.8,0,1.2", SplitBy::automatic),
              ElementsAre(std::pair(990, 1000)));
}

}  // namespace
}  // namespace trireme::data
