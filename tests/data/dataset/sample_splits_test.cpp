#include "src/data/dataset/sample_splits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "src/base/error.hpp"
#include "src/data/dataset/split.hpp"
#include "tests/fakes/memory_token_store.hpp"

namespace trireme::data {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

TEST(Sampler, DealsMicroBatchesToTheRanksInTurn) {
  EXPECT_EQ(first_sample(100, 0, 0, {4, 2}), 100);
  EXPECT_EQ(first_sample(100, 0, 1, {4, 2}), 104);
  EXPECT_EQ(first_sample(100, 1, 0, {4, 2}), 108);
  EXPECT_EQ(first_sample(100, 1, 1, {4, 2}), 112);
}

TEST(SamplesNeeded, CountsTrainingEvaluationsAndTest) {
  RunLength run{.train_iters = 1000, .global_batch_size = 8, .eval_interval = 300, .eval_iters = 10};
  EXPECT_EQ(samples_needed(run), (SampleBudget{8000, 4 * 10 * 8, 10 * 8}));
  run.train_samples = 7001;
  EXPECT_EQ(samples_needed(run), (SampleBudget{7001, 4 * 10 * 8, 10 * 8}));
}

TEST(SamplesNeeded, RefusesOverflow) {
  EXPECT_THROW(samples_needed({.train_iters = -1}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = 1, .global_batch_size = 0}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = 1, .eval_interval = 0}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = INT64_MAX, .global_batch_size = 2}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = INT64_MAX, .eval_iters = 3}), ConfigError);
}

TEST(SampleBudgets, AreRestoredFromTheirAttribute) {
  const std::vector<SampleBudget> budgets = {{32, 8, 4}, {INT64_MAX, 0, 0}};
  EXPECT_EQ(attributes_of(budgets).texts().at("data_budgets"), "32,8,4;9223372036854775807,0,0");
  EXPECT_EQ(budgets_from(attributes_of(budgets)), budgets);
  EXPECT_TRUE(budgets_from(attributes_of(std::vector<SampleBudget>())).empty());
  EXPECT_THROW(budgets_from({}), CheckpointError);
  for (const char* text : {"1,2,3x", "1,2", "1,2,", "1,2,-3", "1;2;3", "1 2 3", " 1,2,3", ";1,2,3", "1,2,3,4",
                           "1,2,9223372036854775808", "x"}) {
    EXPECT_THAT(
        [&] {
          budgets_from({{"data_budgets", text}});
        },
        testing::ThrowsMessage<CheckpointError>(
            testing::HasSubstr(fmt::format("the attribute data_budgets is '{}' instead of three", text))));
  }
}

MemoryTokenStore store_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<std::int32_t>> documents;
  for (const std::size_t size : sizes) documents.emplace_back(size, 1);
  return {2, documents};
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
  EXPECT_THAT(split_boundaries(parse_split("1/1"), 5), ElementsAre(0, 2, 5, 5));  // 2.5 rounds to even
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

std::vector<double> normalized(std::vector<double> weights) { return normalized_weights(weights); }

TEST(Blend, NumbersTheSamplesOfEachCorpusWithoutGaps) {
  const BlendOrder order({{0, normalized({5, 1, 3, 0.5})}}, 1000);
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

TEST(Blend, EachCorpusContinuesInLaterStages) {
  const std::vector<WeightedStore> stores = {{nullptr, 3}, {nullptr, 1}, {nullptr, 0}};
  const std::vector<BlendStage> later = {{301, {0, 2, 2}}, {302, {1, 0, 4}}, {5000, {1, 1, 1}}};
  const BlendOrder order(blend_stages(stores, later), 1000);
  std::vector<std::int64_t> counts(3);
  for (std::int64_t k = 0; k < order.size(); ++k) {
    ASSERT_EQ(order.counts(k), counts) << k;
    const auto [corpus, sample] = order.at(k);
    ASSERT_EQ(sample, counts[corpus]++) << k;
  }
  // 301 by 3:1, one of the second stage, 698 by 1:4.
  EXPECT_THAT(order.counts(301), ElementsAre(226, 75, 0));
  EXPECT_THAT(order.counts(302), ElementsAre(226, 76, 0));
  EXPECT_THAT(order.counts(1000), ElementsAre(226 + 140, 76, 558));
  // A sample depends neither on the run's length nor on stages after it.
  const BlendOrder shorter(blend_stages(stores, {later[0]}), 302);
  for (std::int64_t k = 0; k < 302; ++k) ASSERT_EQ(shorter.at(k), order.at(k)) << k;
}

TEST(Blend, RefusesStagesOutOfOrderOrWithoutWeights) {
  const std::vector<WeightedStore> stores = {{nullptr, 3}, {nullptr, 1}};
  EXPECT_THROW(blend_stages(stores, {{0, {1, 1}}}), ConfigError);
  EXPECT_THROW(blend_stages(stores, {{9, {1, 1}}, {9, {1, 2}}}), ConfigError);
  EXPECT_THROW(blend_stages(stores, {{9, {0, 0}}}), ConfigError);
  EXPECT_THROW(blend_stages(stores, {{9, {1, -1}}}), ConfigError);
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
