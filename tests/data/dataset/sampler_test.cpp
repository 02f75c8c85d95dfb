#include "src/data/dataset/sample_splits.hpp"

#include <gmock/gmock.h>

#include <set>

#include "src/base/error.hpp"

namespace trireme::data {
namespace {

TEST(Sampler, TakesEachSampleOfAGlobalBatchOnceOnEveryGrid) {
  constexpr std::int64_t global_batch = 24, consumed = 5 * global_batch;
  for (const std::int64_t data_parallel_size : {1, 2, 3, 4}) {
    for (const std::int64_t micro_batch_size : {1, 2, 3, 6}) {
      if (global_batch % (data_parallel_size * micro_batch_size) != 0) continue;
      std::set<std::int64_t> taken;
      for (std::int64_t rank = 0; rank < data_parallel_size; ++rank) {
        for (std::int64_t j = 0; j < global_batch / (data_parallel_size * micro_batch_size); ++j) {
          const std::int64_t first = first_sample(consumed, j, rank, {micro_batch_size, data_parallel_size});
          for (std::int64_t i = 0; i < micro_batch_size; ++i) EXPECT_TRUE(taken.insert(first + i).second);
        }
      }
      EXPECT_EQ(taken.size(), static_cast<std::size_t>(global_batch));
      EXPECT_EQ(*taken.begin(), consumed);
      EXPECT_EQ(*taken.rbegin(), consumed + global_batch - 1);
    }
  }
}

TEST(Sampler, DealsMicroBatchesToTheRanksInTurn) {
  EXPECT_EQ(first_sample(100, 0, 0, {4, 2}), 100);
  EXPECT_EQ(first_sample(100, 0, 1, {4, 2}), 104);
  EXPECT_EQ(first_sample(100, 1, 0, {4, 2}), 108);
  EXPECT_EQ(first_sample(100, 1, 1, {4, 2}), 112);
}

TEST(SamplesNeeded, CountsTrainingEvaluationsAndTest) {
  const SampleBudget budget =
      samples_needed({.train_iters = 1000, .global_batch_size = 8, .eval_interval = 300, .eval_iters = 10});
  EXPECT_EQ(budget, (SampleBudget{8000, 4 * 10 * 8, 10 * 8}));
}

TEST(SamplesNeeded, AreThoseGivenInTrainingBySamples) {
  const SampleBudget budget = samples_needed(
      {.train_iters = 1000, .train_samples = 7001, .global_batch_size = 8, .eval_interval = 300, .eval_iters = 10});
  EXPECT_EQ(budget, (SampleBudget{7001, 4 * 10 * 8, 10 * 8}));
}

TEST(SamplesNeeded, RefusesWhatCannotBeCounted) {
  EXPECT_THROW(samples_needed({.train_iters = -1}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = 1, .global_batch_size = 0}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = 1, .eval_interval = 0}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = INT64_MAX, .global_batch_size = 2}), ConfigError);
  EXPECT_THROW(samples_needed({.train_iters = INT64_MAX, .eval_iters = 3}), ConfigError);
}

TEST(SampleBudgets, ComeBackFromTheirAttribute) {
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

}  // namespace
}  // namespace trireme::data
