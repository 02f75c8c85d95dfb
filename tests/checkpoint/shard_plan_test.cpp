#include "src/checkpoint/shard_plan.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/support/random_slices.hpp"

namespace trireme::checkpoint {
namespace {

using test::random_below;
using test::random_partition;

const std::vector<Shape> shapes{{}, {1}, {7}, {5, 6}, {1, 9}, {3, 4, 2, 5}, {2, 3, 2, 2, 3}};

std::vector<ElementRange> common_ranges(const TensorSlice& source, const TensorSlice& target) {
  std::vector<ElementRange> common;
  for_each_common_range(source, target, [&](const ElementRange& range) { common.push_back(range); });
  return common;
}

TEST(ShardPlan, RunsOfRandomPartsAreThoseOfTheNaiveOracle) {
  test::Random random(1);
  for (int round = 0; round < 300; ++round) {
    for (const Shape& shape : shapes) {
      for (const TensorSlice& source : random_partition(random, shape)) {
        for (const TensorSlice& target : random_partition(random, shape)) {
          // Position in the target of each element of the source, or -1.
          std::vector<std::int64_t> expected(static_cast<std::size_t>(source.count), -1);
          for (std::int64_t i = 0; i < source.count; ++i) {
            for (std::int64_t j = 0; j < target.count; ++j) {
              if (test::naive_index(shape, source, i) == test::naive_index(shape, target, j)) expected[i] = j;
            }
          }
          std::vector<std::int64_t> found(expected.size(), -1);
          ElementRange previous;
          for (const ElementRange& range : common_ranges(source, target)) {
            ASSERT_GT(range.count, 0);
            ASSERT_GE(range.from, previous.from + previous.count);
            ASSERT_GE(range.to, previous.to + previous.count);
            // As long as possible: it does not continue the one before.
            ASSERT_TRUE(previous.count == 0 || range.from > previous.from + previous.count ||
                        range.to > previous.to + previous.count);
            std::iota(found.begin() + range.from, found.begin() + range.from + range.count, range.to);
            previous = range;
          }
          ASSERT_EQ(found, expected) << to_string(shape);
        }
      }
    }
  }
}

TEST(ShardPlan, RandomPartitionsCoverExactlyOnce) {
  test::Random random(2);
  for (int round = 0; round < 200; ++round) {
    for (const Shape& shape : shapes) {
      std::vector<TensorSlice> slices = random_partition(random, shape);
      EXPECT_EQ(coverage_problem(shape, slices), "");
      std::ranges::shuffle(slices, random);
      const TensorSlice last = slices.back();
      slices.pop_back();
      EXPECT_THAT(coverage_problem(shape, slices), testing::HasSubstr("are missing"));
      slices.push_back(last);
      slices.push_back(slices[random_below(random, static_cast<std::int64_t>(slices.size()))]);
      EXPECT_THAT(coverage_problem(shape, slices), testing::HasSubstr("are there twice"));
      // One element too many and another one missing: the sum is right, the cover is not.
      slices = random_partition(random, shape);
      if (slices.size() > 1 && slices[0].count > 1 && slices[1].flat_begin > 0) {
        slices[0].count -= 1;
        slices[1].flat_begin -= 1;
        slices[1].count += 1;
        EXPECT_EQ(coverage_problem(shape, slices), "") << "the two only moved their border";
        slices[1].flat_begin -= 1;
        EXPECT_NE(coverage_problem(shape, slices), "");
      }
    }
  }
}

TEST(ShardPlan, PartsOutsideTheirTensorAreFound) {
  const Shape shape{4, 6};
  EXPECT_EQ(slice_problem(shape, {{{1, 2}, {3, 4}}, 5, 7}), "");
  EXPECT_NE(slice_problem(shape, {{{1, 2}, {3, 5}}, 0, 1}), "");
  EXPECT_NE(slice_problem(shape, {{{-1, 0}, {2, 2}}, 0, 1}), "");
  EXPECT_NE(slice_problem(shape, {{{0}, {4}}, 0, 1}), "");
  EXPECT_NE(slice_problem(shape, {{{0, 0}, {4, 6}}, 20, 5}), "");
  EXPECT_NE(slice_problem(shape, {{{0, 0}, {4, 6}}, -1, 5}), "");
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_NE(slice_problem({huge, huge}, {{{0, 0}, {huge, huge}}, 0, 1}), "");
  EXPECT_NE(slice_problem(shape, {{{huge, 0}, {huge, 1}}, 0, 1}), "");
}

}  // namespace
}  // namespace trireme::checkpoint
