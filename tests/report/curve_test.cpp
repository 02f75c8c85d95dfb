#include "src/report/curve.hpp"

#include <gmock/gmock.h>

#include <tuple>

namespace trireme::test {
namespace {

using report::Column;
using report::Curve;
using report::NewestRecords;

TEST(Curve, KeepsEachOfFewPoints) {
  Curve curve(11, 15, 100);
  for (int x = 11; x <= 15; ++x) curve.add(x, 2.0 * x);
  const std::vector<Column> columns = curve.columns();
  ASSERT_EQ(columns.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(columns[i].first_x, static_cast<std::int64_t>(11 + i));
    EXPECT_EQ(columns[i].count, 1);
    EXPECT_EQ(columns[i].mean(), 2.0 * static_cast<double>(11 + i));
  }
}

TEST(Curve, ReducesAMillionPointsToTheRangeAndMeanOfEachColumn) {
  constexpr std::int64_t size = 1000000, columns = 100, spike = 123456;
  Curve curve(1, size, columns);
  for (std::int64_t x = 1; x <= size; ++x) curve.add(x, x == spike ? 1e6 : static_cast<double>(x % 10));
  const std::vector<Column> reduced = curve.columns();
  ASSERT_EQ(reduced.size(), static_cast<std::size_t>(columns));
  EXPECT_EQ(curve.count(), size);
  for (const Column& column : reduced) {
    EXPECT_EQ(column.count, size / columns);
    EXPECT_EQ(column.min, 0);
    const bool has_spike = column.first_x <= spike && spike <= column.last_x;
    EXPECT_EQ(column.max, has_spike ? 1e6 : 9);
    if (!has_spike) {
      EXPECT_DOUBLE_EQ(column.mean(), 4.5);
    }
  }
}

TEST(Curve, MergedColumnsAreThoseOfACoarserCurve) {
  Curve fine(1, 9999, 3840), coarse(1, 9999, 480);
  for (int x = 1; x <= 9999; ++x) {
    const std::optional<double> value = x % 11 == 0 ? std::nullopt : std::optional(static_cast<double>(x % 13));
    fine.add(x, value);
    coarse.add(x, value);
  }
  const std::vector<Column> merged = report::merged(fine.columns(), 1, 9999, 480), expected = coarse.columns();
  ASSERT_EQ(merged.size(), expected.size());
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const auto members = [](const Column& c) {
      return std::tuple(c.first_x, c.last_x, c.count, c.not_finite, c.min, c.max, c.sum, c.last);
    };
    EXPECT_EQ(members(merged[i]), members(expected[i])) << i;
  }
}

TEST(Curve, CountsNonFiniteValuesSeparately) {
  Curve curve(1, 3, 10);
  curve.add(1, 1.0);
  curve.add(2, std::nullopt);
  curve.add(3, 0.5);
  EXPECT_EQ(curve.count(), 2);
  EXPECT_EQ(curve.not_finite(), 1);
  ASSERT_EQ(curve.columns().size(), 3u);
  EXPECT_EQ(curve.columns()[1].not_finite, 1);
  EXPECT_EQ(curve.least()->x, 3);
  EXPECT_EQ(curve.last()->value, 0.5);
}

TEST(Curve, TreatsValuesThatWouldOverflowAsNotFinite) {
  Curve curve(1, 4, 10);
  for (const double value : {1.7e308, -1.7e308, 2.0, 5e-324}) curve.add(1, value);
  EXPECT_EQ(curve.not_finite(), 2);
  EXPECT_EQ(curve.greatest()->value, 2);
  EXPECT_EQ(curve.least()->value, 0);
}

TEST(Curve, VariesIfTwoValuesDiffer) {
  Curve falling(1, 3, 10), constant(1, 3, 10);
  for (const int x : {1, 2, 3}) {
    falling.add(x, 4.0 - x);
    constant.add(x, 4.0);
  }
  EXPECT_TRUE(falling.varies());
  EXPECT_EQ(falling.greatest()->x, 1);
  EXPECT_EQ(falling.greatest()->value, 3);
  EXPECT_FALSE(constant.varies());
  EXPECT_FALSE(Curve(1, 3, 10).varies());
}

TEST(Curve, HasAtMostTheRequestedColumnsForAnyRange) {
  Curve curve(-9000000000000000000, 9000000000000000000, 10);
  for (const std::int64_t x : {-9000000000000000000, std::int64_t{0}, 9000000000000000000}) curve.add(x, 1.0);
  EXPECT_EQ(curve.columns().size(), 3u);
}

/// Reads iterations twice and returns those of the newest records.
std::vector<std::int64_t> newest_of(NewestRecords& records, const std::vector<std::int64_t>& iterations) {
  for (const std::int64_t iteration : iterations) records.survey(iteration);
  records.begin_reading();
  std::vector<std::int64_t> newest;
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    if (records.is_newest(iterations[i])) newest.push_back(static_cast<std::int64_t>(i));
  }
  return newest;
}

TEST(NewestRecords, ReplaceThoseOfThePreviousAttempt) {
  NewestRecords records;
  // Attempts 1 to 5, 4 to 6, and 3 to 4: the last replaces everything from 3 on.
  EXPECT_THAT(newest_of(records, {1, 2, 3, 4, 5, 4, 5, 6, 3, 4}), testing::ElementsAre(0, 1, 8, 9));
  EXPECT_EQ(records.first(), 1);
  EXPECT_EQ(records.last(), 4);
}

TEST(NewestRecords, OfARestartedRunAreThoseOfTheRestart) {
  NewestRecords records;
  EXPECT_THAT(newest_of(records, {10, 11, 1, 2}), testing::ElementsAre(2, 3));
  EXPECT_EQ(records.first(), 1);
}

}  // namespace
}  // namespace trireme::test
