#include "src/data/dataset/numpy_random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "src/data/dataset/python_random.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;

std::vector<int> shuffled(std::uint32_t seed, std::size_t size) {
  std::vector<int> items(size);
  std::iota(items.begin(), items.end(), 0);
  NumpyRandom(seed).shuffle(std::span(items));
  return items;
}

// The expected values come from numpy.random.RandomState.
TEST(NumpyRandom, DrawsNumpysDoubles) {
  NumpyRandom random(1234);
  EXPECT_EQ(random.random(), 0.1915194503788923);
  EXPECT_EQ(random.random(), 0.6221087710398319);
}

TEST(NumpyRandom, ShufflesAsNumpyDoes) {
  EXPECT_THAT(shuffled(0, 10), ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5));
  EXPECT_THAT(shuffled(42, 10), ElementsAre(8, 1, 5, 0, 7, 2, 9, 4, 3, 6));
  const std::vector<int> large = shuffled(5, 1'000'000);
  EXPECT_THAT(std::vector(large.begin(), large.begin() + 4), ElementsAre(399883, 634096, 624405, 861097));
  EXPECT_THAT(std::vector(large.end() - 3, large.end()), ElementsAre(544751, 18638, 297827));
}

TEST(NumpyRandom, DrawsNumpysIntegersBelowABoundOf32BitsAndOfMore) {
  NumpyRandom small(7);
  for (const std::uint64_t expected : {4, 9, 6, 3, 3, 7, 7, 9}) EXPECT_EQ(small.randint(10), expected);
  NumpyRandom large(7);
  for (const std::uint64_t expected : {752595690692u, 108744157686u, 291964244179u, 650496783975u}) {
    EXPECT_EQ(large.randint(std::uint64_t{1} << 40), expected);
  }
  NumpyRandom mixed(7);
  EXPECT_EQ(mixed.randint(1), 0u);
  EXPECT_EQ(mixed.randint(std::uint64_t{1} << 32), 327741615u);
  EXPECT_EQ(NumpyRandom(UINT32_MAX).randint(1000), 419u);
}

// The expected values come from Python's random.Random.
TEST(PythonRandom, DrawsPythonsNumbersAndSamples) {
  PythonRandom random(1234);
  EXPECT_EQ(random.random(), 0.96645353569213877);
  EXPECT_EQ(random.below(100), 56u);
  EXPECT_THAT(random.sample(10, 3), ElementsAre(1, 0, 9));
  EXPECT_THAT(random.sample(1000, 7), ElementsAre(932, 965, 961, 826, 596, 35, 687));
  EXPECT_THAT(random.sample(80, 8), ElementsAre(10, 12, 45, 30, 2, 3, 75, 44));
  PythonRandom wide(std::uint64_t{5} << 33);
  EXPECT_EQ(wide.random(), 0.57116452839034138);
  EXPECT_THROW(wide.sample(3, 4), ConfigError);
}

}  // namespace
}  // namespace trireme::data
