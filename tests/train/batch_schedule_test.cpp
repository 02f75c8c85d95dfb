#include "src/train/batch_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace trireme::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// Returns the batch sizes, iteration by iteration.
std::vector<std::int64_t> sizes(const BatchSchedule& schedule, std::int64_t consumed, std::int64_t total) {
  std::vector<std::int64_t> list;
  while (consumed + schedule.size(consumed) <= total) {
    list.push_back(schedule.size(consumed));
    consumed += list.back();
  }
  return list;
}

std::vector<std::int64_t> sizes(const std::vector<BatchPhase>& plan) {
  std::vector<std::int64_t> list;
  for (const BatchPhase& phase : plan) list.insert(list.end(), static_cast<std::size_t>(phase.iterations), phase.size);
  return list;
}

TEST(BatchSchedule, RampsUpAtEqualDistances) {
  // Three increments over 30 samples: one after each 10.
  const BatchSchedule schedule(8, BatchRampUp{2, 2, 30}, false, 1, 2);
  EXPECT_EQ(schedule.size(0), 2);
  EXPECT_EQ(schedule.size(9), 2);
  EXPECT_EQ(schedule.size(10), 4);
  EXPECT_EQ(schedule.size(19), 4);
  EXPECT_EQ(schedule.size(20), 6);
  EXPECT_EQ(schedule.size(29), 6);
  EXPECT_EQ(schedule.size(30), 8);
  EXPECT_EQ(schedule.max_size(), 8);
  // 5 x 2 = 10, 3 x 4 = 22, 2 x 6 = 34, then 8.
  EXPECT_THAT(sizes(schedule.plan(0, 60)), testing::ElementsAre(2, 2, 2, 2, 2, 4, 4, 4, 6, 6, 8, 8, 8));
  EXPECT_EQ(schedule.samples(0, 9), 28);
  EXPECT_EQ(schedule.samples(0, 12), 50);
}

TEST(BatchSchedule, StepsIfTheRampDoesNotDivideEvenly) {
  // 7 increments over 100 samples: the k-th after 100 k / 7.
  const BatchSchedule schedule(16, BatchRampUp{2, 2, 100}, false, 1, 1);
  for (std::int64_t consumed = 0; consumed < 120; ++consumed) {
    EXPECT_EQ(schedule.size(consumed), consumed >= 100 ? 16 : 2 + consumed * 7 / 100 * 2) << consumed;
  }
}

TEST(BatchSchedule, PlansTheSameAsStepByStepIteration) {
  for (const std::int64_t ramp : {1, 7, 100, 1000}) {
    for (const bool decrease : {false, true}) {
      const BatchSchedule schedule(24, BatchRampUp{4, 4, ramp}, decrease, 1, decrease ? 3 : 4);
      for (const std::int64_t consumed : {0, 5, 99, 1000}) {
        for (const std::int64_t total : {0, 3, 50, 777, 2000}) {
          EXPECT_EQ(sizes(schedule.plan(consumed, total)), sizes(schedule, consumed, total));
          const auto count = static_cast<std::int64_t>(sizes(schedule, consumed, total).size());
          EXPECT_EQ(schedule.iterations(consumed, total), count);
          EXPECT_EQ(sizes(schedule.plan(consumed, unlimited, count)), sizes(schedule, consumed, total));
        }
      }
    }
  }
}

TEST(BatchSchedule, StepsAtThresholdsAsMegatronLmDoes) {
  const BatchSchedule schedule(64, BatchSteps{{{0, 16}, {200, 32}, {800, 64}}}, false, 4, 2);
  const std::pair<std::int64_t, std::int64_t> at[] = {{0, 16}, {199, 16}, {200, 32}, {201, 32}, {799, 32}, {800, 64}};
  for (const auto& [consumed, size] : at) EXPECT_EQ(schedule.size(consumed), size) << consumed;
  // 13 batches of 16 up to 208, 19 of 32 up to 816, then 64; a partial last batch is omitted.
  EXPECT_EQ(schedule.samples(0, 13), 208);
  EXPECT_EQ(schedule.samples(0, 32), 816);
  EXPECT_EQ(schedule.iterations(0, 100), 6);
  EXPECT_EQ(schedule.iterations(0, 1000), 34);
  EXPECT_EQ(schedule.iterations(0, 3000), 66);
  EXPECT_TRUE(schedule.ramps_up());

  const BatchSchedule falling(64, BatchSteps{{{0, 64}, {100, 32}}}, false, 4, 2);
  EXPECT_EQ(falling.size(64), 64);
  EXPECT_EQ(falling.size(128), 32);
  EXPECT_EQ(falling.max_size(), 64);
}

TEST(BatchSchedule, RefusesSizesThatDoNotDivide) {
  const auto refused = [](std::int64_t size, const std::optional<BatchGrowth>& growth, bool decrease,
                          std::int64_t micro_batch, const char* problem) {
    EXPECT_THAT([&] { BatchSchedule(size, growth, decrease, micro_batch, 3); },
                ThrowsMessage<ConfigError>(HasSubstr(problem)));
  };
  refused(32, {}, false, 8,
          "<global_batch_size> 32 is not a multiple of <micro_batch_size> 8 times 3 data ranks (= 24)");
  refused(32, {}, false, 8, "choose 24 or 48");
  refused(8, {}, true, 4, "(= 12): choose 12,");
  refused(12, BatchRampUp{4, 4, 10}, false, 1, "a global batch of 8 is not a multiple of <micro_batch_size> 1");
  refused(12, BatchRampUp{3, 3, 0}, false, 1, "first batch, increment and samples are each at least 1");
}

TEST(BatchSchedule, RefusesInvalidSteps) {
  const auto refused = [](std::vector<BatchLevel> levels, std::int64_t largest, const char* problem) {
    EXPECT_THAT([&] { BatchSchedule(largest, BatchSteps{levels}, false, 4, 2); },
                ThrowsMessage<ConfigError>(HasSubstr(problem)));
  };
  refused({{10, 16}, {20, 32}}, 32, "must begin at 0");
  refused({}, 32, "must begin at 0");
  refused({{0, 16}, {0, 32}}, 32, "two sizes, 16 and 32, begin at sample 0");
  refused({{0, 16}, {100, 0}}, 16, "a batch of 0 samples");
  refused({{0, 12}, {100, 64}}, 64, "<step_batch_size_schedule>: a global batch of 12 is not a multiple");
}

TEST(BatchSchedule, CountsSamplesOfLongRuns) {
  const std::int64_t tokens = std::int64_t{300} * 1000 * 1000 * 1000;
  const BatchSchedule schedule(1536, BatchRampUp{32, 32, 5859375}, false, 1, 32);
  EXPECT_EQ(schedule.planned(5859374), 1504);
  EXPECT_EQ(schedule.planned(5859375), 1536);
  EXPECT_GT(schedule.iterations(0, tokens), tokens / 1536);
}

TEST(BatchSchedule, RoundsDownOnRequest) {
  const BatchSchedule schedule(32, {}, true, 8, 3);
  EXPECT_EQ(schedule.planned(0), 32);
  EXPECT_EQ(schedule.size(0), 24);
  EXPECT_EQ(schedule.max_size(), 24);
  EXPECT_EQ(schedule.iterations(0, 100), 4);
}

}  // namespace
}  // namespace trireme::train
