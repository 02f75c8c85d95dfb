#include "src/report/scale.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace trireme::test {
namespace {

using report::Axis;
using report::Scale;
using report::short_number;
using testing::ElementsAre;

std::vector<std::string> labels_of(const Scale& scale) {
  std::vector<std::string> labels;
  for (const report::Tick& tick : scale.ticks) labels.push_back(tick.label);
  return labels;
}

TEST(VerticalScale, BeginsAndEndsAtARoundNumber) {
  const Scale scale = report::vertical_scale(2.63, 11.2, Axis::fitted, 5);
  EXPECT_THAT(labels_of(scale), ElementsAre("2", "4", "6", "8", "10", "12"));
  EXPECT_EQ(scale.min, 2);
  EXPECT_EQ(scale.max, 12);
  EXPECT_DOUBLE_EQ(scale.place(7), 0.5);
  EXPECT_EQ(scale.place(1), 0);
  EXPECT_EQ(scale.place(100), 1);
}

TEST(VerticalScale, HasAsManyDecimalsAsItsStep) {
  EXPECT_THAT(labels_of(report::vertical_scale(3.02, 3.21, Axis::fitted, 4)),
              ElementsAre("3.00", "3.05", "3.10", "3.15", "3.20", "3.25"));
  EXPECT_THAT(labels_of(report::vertical_scale(0, 6e-4, Axis::from_zero, 3)), ElementsAre("0", "2e-4", "4e-4", "6e-4"));
  EXPECT_THAT(labels_of(report::vertical_scale(1e5, 1.4e6, Axis::from_zero, 3)),
              ElementsAre("0", "0.5M", "1.0M", "1.5M"));
}

TEST(VerticalScale, IsLogarithmicIfPositiveValuesSpanAFactorOfTen) {
  const Scale scale = report::vertical_scale(0.5, 500, Axis::decades, 5);
  EXPECT_TRUE(scale.is_log);
  EXPECT_THAT(labels_of(scale), ElementsAre("1", "10", "100"));
  EXPECT_NEAR(scale.place(std::sqrt(0.5 * 500)), 0.5, 1e-12);
  EXPECT_THAT(labels_of(report::vertical_scale(0.3, 30, Axis::decades, 5)),
              ElementsAre("0.5", "1", "2", "5", "10", "20"));
  EXPECT_FALSE(report::vertical_scale(3, 11, Axis::decades, 5).is_log);
  EXPECT_FALSE(report::vertical_scale(0, 500, Axis::decades, 5).is_log);
  EXPECT_LE(report::vertical_scale(1e-8, 1e30, Axis::decades, 5).ticks.size(), 7u);
}

TEST(VerticalScale, SurroundsASingleValue) {
  for (const double value : {0.0, 4.0, -3.0, 1e-12, 1e12}) {
    const Scale scale = report::vertical_scale(value, value, Axis::fitted, 5);
    EXPECT_LT(scale.min, value);
    EXPECT_GT(scale.max, value);
    EXPECT_GE(scale.ticks.size(), 2u);
  }
}

TEST(HorizontalScale, HasIntegerTicks) {
  EXPECT_THAT(labels_of(report::horizontal_scale(1, 6000, 6)),
              ElementsAre("1000", "2000", "3000", "4000", "5000", "6000"));
  EXPECT_THAT(labels_of(report::horizontal_scale(1, 3, 6)), ElementsAre("1", "2", "3"));
  EXPECT_THAT(labels_of(report::horizontal_scale(1, 1, 6)), ElementsAre("1", "2"));
  EXPECT_THAT(labels_of(report::horizontal_scale(1, 1e6, 5)), ElementsAre("0.2M", "0.4M", "0.6M", "0.8M", "1.0M"));
  EXPECT_THAT(labels_of(report::horizontal_scale(1000001, 1000100, 5)),
              ElementsAre("1000020", "1000040", "1000060", "1000080", "1000100"));
}

TEST(ShortNumber, IsShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(6e-4), "6e-4");
  EXPECT_EQ(short_number(1234), "1234");
  EXPECT_EQ(short_number(12500), "12.5k");
  EXPECT_EQ(short_number(1000, 3), "1000");
  EXPECT_EQ(short_number(1234, 3), "1234");
  EXPECT_EQ(short_number(9999.9), "10000");
  EXPECT_EQ(short_number(999999, 3), "1000k");
  EXPECT_EQ(short_number(3.2e6), "3.2M");
  EXPECT_EQ(short_number(-3.2e6), "-3.2M");
  EXPECT_EQ(short_number(1e30), "1e30");
  EXPECT_EQ(short_number(std::nan("")), "not finite");
}

}  // namespace
}  // namespace trireme::test
