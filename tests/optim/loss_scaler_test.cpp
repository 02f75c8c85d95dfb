#include "src/optim/loss_scaler.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace trireme::optim {
namespace {

LossScalerOptions dynamic(double initial, int window, int hysteresis) {
  LossScalerOptions options;
  options.dynamic = true;
  options.initial_scale = initial;
  options.growth_window = window;
  options.hysteresis = hysteresis;
  return options;
}

double after(LossScaler& scaler, bool overflow) {
  scaler.update(overflow);
  return scaler.scale();
}

TEST(LossScaler, HalvesOnceTheHysteresisIsUsedUpAndThenAtEachOverflow) {
  LossScaler scaler(dynamic(64, 3, 2));
  EXPECT_EQ(after(scaler, true), 64);  // the first overflow is forgiven
  EXPECT_EQ(after(scaler, true), 32);
  EXPECT_EQ(after(scaler, true), 16);  // halving does not fill the hysteresis again
  EXPECT_EQ(after(scaler, false), 16);
  EXPECT_EQ(after(scaler, true), 8);  // nor does one good update
}

TEST(LossScaler, DoublesAfterAWindowOfGoodUpdatesAndRestoresTheHysteresis) {
  LossScaler scaler(dynamic(64, 3, 2));
  after(scaler, true);
  EXPECT_EQ(after(scaler, true), 32);
  EXPECT_EQ(after(scaler, false), 32);
  EXPECT_EQ(after(scaler, false), 32);
  EXPECT_EQ(after(scaler, false), 64);
  EXPECT_EQ(after(scaler, true), 64);
  EXPECT_EQ(after(scaler, true), 32);
}

TEST(LossScaler, AnOverflowEmptiesTheWindow) {
  LossScaler scaler(dynamic(64, 3, 2));
  after(scaler, false);
  after(scaler, false);
  EXPECT_EQ(after(scaler, true), 64);
  EXPECT_EQ(after(scaler, false), 64);
  EXPECT_EQ(after(scaler, false), 64);
  EXPECT_EQ(after(scaler, false), 128);
}

TEST(LossScaler, StopsAtTheMinimum) {
  LossScalerOptions options = dynamic(8, 1000, 1);
  options.minimum_scale = 3;
  LossScaler scaler(options);
  EXPECT_EQ(after(scaler, true), 4);
  EXPECT_FALSE(scaler.at_minimum());
  EXPECT_EQ(after(scaler, true), 3);
  EXPECT_TRUE(scaler.at_minimum());
  EXPECT_EQ(after(scaler, true), 3);
}

TEST(LossScaler, AConstantScaleNeverChanges) {
  LossScalerOptions options;
  options.initial_scale = 0.5;
  LossScaler scaler(options);
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(after(scaler, i % 3 == 0), 0.5);
}

TEST(LossScaler, ContinuesFromASavedState) {
  LossScaler one(dynamic(64, 3, 2));
  after(one, true);
  after(one, false);
  after(one, false);
  LossScaler other(dynamic(1, 3, 2));
  other.restore(one.state());
  for (const bool overflow : {false, true, true, false, false, false, true}) {
    EXPECT_EQ(after(one, overflow), after(other, overflow));
    EXPECT_EQ(one.state(), other.state());
  }
}

TEST(LossScaler, AShorterWindowThanTheSavedStateIsFullAtOnce) {
  LossScaler scaler(dynamic(64, 3, 2));
  scaler.restore({64, 500, 1});
  EXPECT_EQ(after(scaler, false), 128);
}

TEST(LossScaler, RefusesInvalidSettings) {
  EXPECT_THROW(LossScaler(dynamic(0, 1, 1)), ConfigError);
  EXPECT_THROW(LossScaler(dynamic(-2, 1, 1)), ConfigError);
  EXPECT_THROW(LossScaler(dynamic(2, 0, 1)), ConfigError);
  EXPECT_THROW(LossScaler(dynamic(2, 1, 0)), ConfigError);
  EXPECT_THROW(LossScaler(dynamic(0.5, 1, 1)), ConfigError);  // below the minimum
}

}  // namespace
}  // namespace trireme::optim
