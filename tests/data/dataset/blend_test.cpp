#include "src/data/dataset/sample_splits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.hpp"

namespace trireme::data {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

std::vector<double> normalized(std::vector<double> weights) { return normalized_weights(weights); }

TEST(Blend, TakesTheCorpusThatIsFurthestBehindItsShare) {
  const BlendOrder order(normalized({.3, .5, .2}), 12);
  std::vector<std::size_t> corpora;
  for (std::int64_t k = 0; k < order.size(); ++k) corpora.push_back(order.at(k).first);
  EXPECT_THAT(corpora, ElementsAre(1, 0, 2, 1, 0, 1, 2, 1, 0, 1, 0, 1));
}

TEST(Blend, NumbersTheSamplesOfEachCorpusWithoutGaps) {
  const BlendOrder order(normalized({5, 1, 3, 0.5}), 1000);
  std::vector<std::int64_t> counts(4);
  for (std::int64_t k = 0; k < order.size(); ++k) {
    ASSERT_EQ(order.counts(k), counts) << k;
    const auto [corpus, sample] = order.at(k);
    ASSERT_EQ(sample, counts[corpus]++) << k;
  }
  EXPECT_EQ(order.counts(1000), counts);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(counts[i]), 1000 * normalized({5, 1, 3, 0.5})[i], 2) << i;
  }
}

TEST(Blend, WeightsOfAnyScaleBecomeShares) {
  EXPECT_THAT(normalized({6, 2}), ElementsAre(DoubleEq(0.75), DoubleEq(0.25)));
  EXPECT_THAT(normalized({1e-300, 3e-300}), ElementsAre(DoubleEq(0.25), DoubleEq(0.75)));
}

TEST(Blend, RefusesWeightsThatAreNotPositiveNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double weight : {0.0, -1.0, std::nan(""), infinity}) {
    EXPECT_THROW(normalized({1, weight}), ConfigError) << weight;
  }
  EXPECT_THROW(normalized({0, 0}), ConfigError);
  EXPECT_THROW(normalized({1e308, 1e308, 1}), ConfigError);  // the sum overflows
  EXPECT_THROW(normalized({1e300, 1e-300}), ConfigError);    // the share vanishes
}

}  // namespace
}  // namespace trireme::data
