#include "src/optim/lr_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.hpp"

namespace trireme::optim {
namespace {

LrSchedule schedule(LrDecayStyle style, std::int64_t warmup, std::int64_t decay) {
  return {style, 1e-3, 1e-4, warmup, decay};
}

TEST(LrSchedule, WarmsUpToTheMaximumAtTheLastUpdateOfTheWarmUp) {
  for (const LrDecayStyle style :
       {LrDecayStyle::constant, LrDecayStyle::linear, LrDecayStyle::cosine, LrDecayStyle::inverse_square_root}) {
    const LrSchedule lr = schedule(style, 5, 20);
    EXPECT_DOUBLE_EQ(lr.at(1), 2e-4);
    EXPECT_DOUBLE_EQ(lr.at(3), 6e-4);
    EXPECT_EQ(lr.at(5), 1e-3);
  }
}

TEST(LrSchedule, ConstantStaysAtTheMaximum) {
  const LrSchedule lr = schedule(LrDecayStyle::constant, 0, 10);
  EXPECT_EQ(lr.at(1), 1e-3);
  EXPECT_EQ(lr.at(10), 1e-3);
  EXPECT_EQ(lr.at(1000), 1e-3);
}

TEST(LrSchedule, LinearEndsAtTheMinimum) {
  const LrSchedule lr = schedule(LrDecayStyle::linear, 5, 20);
  EXPECT_DOUBLE_EQ(lr.at(8), 1e-4 + 9e-4 * 0.8);
  EXPECT_DOUBLE_EQ(lr.at(20), 1e-4);
  EXPECT_EQ(lr.at(21), 1e-4);
}

TEST(LrSchedule, CosineIsHalfWayInTheMiddleAndEndsAtTheMinimum) {
  const LrSchedule lr = schedule(LrDecayStyle::cosine, 4, 20);
  EXPECT_DOUBLE_EQ(lr.at(8), 1e-4 + 9e-4 * (2 + std::sqrt(2.0)) / 4);  // a quarter of the way
  EXPECT_DOUBLE_EQ(lr.at(12), 5.5e-4);
  EXPECT_DOUBLE_EQ(lr.at(20), 1e-4);
  EXPECT_EQ(lr.at(1000000), 1e-4);
}

TEST(LrSchedule, InverseSquareRootFallsFromTheWarmUpAndNotBelowTheMinimum) {
  const LrSchedule lr = schedule(LrDecayStyle::inverse_square_root, 4, 1000);
  EXPECT_DOUBLE_EQ(lr.at(16), 5e-4);
  EXPECT_DOUBLE_EQ(lr.at(64), 2.5e-4);
  EXPECT_EQ(lr.at(900), 1e-4);
  EXPECT_EQ(lr.at(1001), 1e-4);
  EXPECT_DOUBLE_EQ(schedule(LrDecayStyle::inverse_square_root, 0, 1000).at(4), 5e-4);
}

TEST(LrSchedule, BySamplesGivesTheBitsOfUpdatesForBatchesOfOneSize) {
  for (const LrDecayStyle style :
       {LrDecayStyle::constant, LrDecayStyle::linear, LrDecayStyle::cosine, LrDecayStyle::inverse_square_root}) {
    const LrSchedule updates = schedule(style, 7, 50);
    LrSchedule samples = schedule(style, 7 * 24, 50 * 24);
    samples.by_samples = true;
    for (std::int64_t k = 1; k <= 60; ++k) EXPECT_EQ(samples.at(k * 24), updates.at(k)) << k;
  }
}

TEST(LrSchedule, WithoutWarmUpDecaysFromTheFirstUpdate) {
  EXPECT_DOUBLE_EQ(schedule(LrDecayStyle::linear, 0, 10).at(1), 1e-4 + 9e-4 * 0.9);
}

TEST(LrSchedule, RefusesSettingsThatContradictEachOther) {
  EXPECT_NO_THROW(schedule(LrDecayStyle::cosine, 5, 20).validate());
  EXPECT_NO_THROW(schedule(LrDecayStyle::constant, 50, 0).validate());
  EXPECT_THROW(schedule(LrDecayStyle::cosine, 20, 20).validate(), ConfigError);
  EXPECT_THROW(schedule(LrDecayStyle::linear, 0, 0).validate(), ConfigError);
  EXPECT_THROW(schedule(LrDecayStyle::linear, -1, 10).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, 1e-4, 1e-3, 0, 10}).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, -1e-4, -1e-3, 0, 10}).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, std::nan(""), 0, 0, 10}).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, std::numeric_limits<double>::infinity(), 0, 0, 10}).validate(),
               ConfigError);
}

}  // namespace
}  // namespace trireme::optim
