#include "src/model/model_config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace trireme::model {
namespace {

double frequency(const RotaryEmbedding& rotary, std::int64_t pair) {
  return rotary.scaled(pair,
                       std::pow(rotary.base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary.channels)));
}

TEST(RotaryScaling, WithoutAKindChangesNothing) {
  const RotaryEmbedding rotary = RotaryScaling().embedding(64, 10000);
  for (const std::int64_t pair : {0, 1, 17, 31}) {
    EXPECT_EQ(frequency(rotary, pair), std::pow(10000.0, -2.0 * static_cast<double>(pair) / 64)) << pair;
  }
  EXPECT_EQ(rotary.magnitude, 1);
}

/// The three cases as Llama 3.1's configuration defines them, by wavelengths.
TEST(RotaryScaling, IsThatOfLlama31ByWavelengths) {
  const RotaryEmbedding rotary = RotaryScaling::llama3(8).embedding(128, 500000);
  int kept = 0, divided = 0, between = 0;
  for (std::int64_t pair = 0; pair < 64; ++pair) {
    const double f = std::pow(500000.0, -2.0 * static_cast<double>(pair) / 128), length = 2 * std::numbers::pi / f;
    double expected = f;
    if (length > 8192.0 / 1) {
      expected = f / 8;
      ++divided;
    } else if (length >= 8192.0 / 4) {
      const double smooth = (8192 / length - 1) / (4 - 1);
      expected = (1 - smooth) * f / 8 + smooth * f;
      ++between;
    } else {
      ++kept;
    }
    EXPECT_NEAR(frequency(rotary, pair) / expected, 1, 1e-14) << pair;
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(between, 6);
  EXPECT_EQ(divided, 29);
  EXPECT_EQ(rotary.magnitude, 1);
}

TEST(RotaryScaling, IsThatOfYarnByPairs) {
  const RotaryScaling scaling{RotaryScalingKind::yarn, 4, 32768, 1, 32};
  const RotaryEmbedding rotary = scaling.embedding(128, 1e6);
  // 128 ln(32768 / (2 pi 32)) / (2 ln 1e6) = 23.6 and 128 ln(32768 / 2 pi) / (2 ln 1e6) = 39.7.
  for (std::int64_t pair = 0; pair < 64; ++pair) {
    const double ramp = std::fmin(std::fmax((static_cast<double>(pair) - 23) / (40 - 23), 0), 1);
    const double f = std::pow(1e6, -2.0 * static_cast<double>(pair) / 128);
    EXPECT_NEAR(frequency(rotary, pair) / (f / 4 * ramp + f * (1 - ramp)), 1, 1e-14) << pair;
  }
  EXPECT_NEAR(rotary.magnitude, 0.1 * std::log(4.0) + 1, 1e-15);
}

TEST(RotaryScaling, OfYarnTakesTheMagnitudeOfBothScales) {
  RotaryScaling scaling{RotaryScalingKind::yarn, 40, 4096, 1, 32, 0.707, 0.707};
  EXPECT_EQ(scaling.embedding(64, 10000).magnitude, 1);
  scaling.mscale_all_dim = 0;
  EXPECT_NEAR(scaling.embedding(64, 10000).magnitude, 0.0707 * std::log(40.0) + 1, 1e-15);
}

TEST(RotaryScaling, OfYarnOverFewPairsIsAStep) {
  // Both bounds are at the first pair, as where the sequence of the earlier training made no turn.
  const RotaryEmbedding rotary = RotaryScaling{RotaryScalingKind::yarn, 4, 1, 1, 32}.embedding(8, 10000);
  EXPECT_EQ(frequency(rotary, 0), 1);
  EXPECT_NEAR(frequency(rotary, 1), 0.1 / 4, 1e-15);
}

// All frequencies are divided, whatever else scales them: an angle is that of the position over the factor.
TEST(RotaryScaling, InterpolationDividesPositions) {
  for (RotaryScaling scaling : {RotaryScaling(), RotaryScaling::llama3(8)}) {
    const RotaryEmbedding whole = scaling.embedding(128, 10000);
    scaling.interpolation = 4;
    const RotaryEmbedding divided = scaling.embedding(128, 10000);
    for (std::int64_t pair = 0; pair < 64; ++pair) {
      EXPECT_EQ(4 * frequency(divided, pair), frequency(whole, pair)) << pair;
    }
    EXPECT_EQ(divided.magnitude, 1);
  }
}

}  // namespace
}  // namespace trireme::model
