#include "src/plan/simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace trireme::plan {
namespace {

using parallel::make_schedule;
using parallel::Schedule;
using parallel::ScheduleKind;
using parallel::Step;
using parallel::StepKind;

constexpr double exactly = 1e-12;
constexpr int depths[] = {1, 2, 3, 8};

double bubble(ScheduleKind kind, int p, int m, int v, const ChunkTimes& times) {
  const Schedule schedule = make_schedule(kind, p, m, v);
  return simulate(schedule, ScheduleTimes::uniform(schedule, times)).bubble;
}

TEST(Simulation, MatchesASmallCaseWorkedByHand) {
  const Schedule schedule = make_schedule(ScheduleKind::one_forward_one_backward, 2, 2);
  const Simulation result = simulate(schedule, ScheduleTimes::uniform(schedule, {2, 3, 1}, 0.5));
  // Rank 0: F0 0-2, F1 2-4, B0 once its gradient arrives; rank 1: F0 2.5-4.5, B0 4.5-8.5, F1 8.5-10.5, B1 10.5-14.5.
  ASSERT_EQ(result.ranks[0].size(), 4u);
  EXPECT_EQ(result.ranks[0][1].end, 4);
  EXPECT_EQ(result.ranks[0][2].start, 9);
  EXPECT_EQ(result.ranks[0][3].start, 15);
  EXPECT_EQ(result.ranks[1][0].start, 2.5);
  EXPECT_EQ(result.ranks[1][3].end, 14.5);
  EXPECT_EQ(result.makespan, 19);
  EXPECT_NEAR(result.bubble, 19.0 / 12 - 1, exactly);
  EXPECT_THAT(result.peak_in_flight, testing::ElementsAre(2, 1));
}

TEST(Simulation, BlocksTheReceiverDuringMessages) {
  const Schedule schedule = make_schedule(ScheduleKind::one_forward_one_backward, 2, 2);
  ScheduleTimes times = ScheduleTimes::uniform(schedule, {2, 3, 1}, 0.5);
  times.receive = 0.25;
  const Simulation result = simulate(schedule, times);
  // Rank 1: F0 2.75-4.75, B0 to 8.75, F1 9-11, B1 to 15. Rank 0 has the gradients at 9.5 and 15.75.
  EXPECT_EQ(result.ranks[1][2].start, 9);
  EXPECT_EQ(result.ranks[0][2].start, 9.5);
  EXPECT_EQ(result.makespan, 19.75);
  EXPECT_EQ(result.times[0].busy, 12);
  EXPECT_EQ(result.times[0].messages, 1.5);
  EXPECT_EQ(result.times[0].waits, 4.75 + 1.5);
  EXPECT_EQ(result.times[1].busy + result.times[1].messages + result.times[1].waits, 15);
  // A rank that sends to itself needs no message.
  const Schedule alone = make_schedule(ScheduleKind::interleaved, 1, 2, 2);
  times.chunks.resize(2);
  EXPECT_EQ(simulate(alone, times).makespan, 24);
}

TEST(Simulation, UsesTheTimesOfEachChunk) {
  const Schedule schedule = make_schedule(ScheduleKind::interleaved, 2, 1, 2);
  ScheduleTimes times = ScheduleTimes::uniform(schedule, {1, 1, 1});
  for (std::size_t position = 0; position < 4; ++position) times.chunks[position].forward = double(position + 1);
  const Simulation result = simulate(schedule, times);
  EXPECT_EQ(result.makespan, 1 + 2 + 3 + 4 + 4 * 2);
  EXPECT_EQ(result.ranks[0][1].start, 3);  // chunk 1 of rank 0 is the third
  EXPECT_EQ(result.ranks[0][1].end, 6);
}

TEST(Bubble, IsMinimalForGPipeAndOneForwardOneBackwardWithoutChunks) {
  for (const int p : depths) {
    for (int m = 1; m <= 64; ++m) {
      const double expected = static_cast<double>(p - 1) / m;
      EXPECT_NEAR(bubble(ScheduleKind::gpipe, p, m, 1, {1, 1, 1}), expected, exactly) << p << ", " << m;
      EXPECT_NEAR(bubble(ScheduleKind::one_forward_one_backward, p, m, 1, {1, 1.5, 0.5}), expected, exactly)
          << p << ", " << m;
    }
  }
}

TEST(Bubble, ShrinksWithTheChunksOfInterleaved) {
  for (const int p : depths) {
    for (const int v : {1, 2, 4, 8}) {
      for (int m = 2 * p; m <= 64; m += p) {
        EXPECT_NEAR(bubble(ScheduleKind::interleaved, p, m, v, {1, 1, 1}), static_cast<double>(p - 1) / (v * m),
                    exactly)
            << p << " stages, " << v << " chunks, " << m << " micro-batches";
      }
    }
  }
}

TEST(Bubble, IsBoundedForInterleavedByThatOfAFullLastGroup) {
  for (const int p : depths) {
    for (const int v : {2, 4}) {
      for (int m = 2 * p; m <= 64; ++m) {
        const int full = (m + p - 1) / p * p;
        const Schedule schedule = make_schedule(ScheduleKind::interleaved, p, m, v);
        EXPECT_LE(simulate(schedule, ScheduleTimes::uniform(schedule, {})).makespan, 3.0 * (full * v + p - 1));
      }
    }
  }
}

TEST(Bubble, IsForZeroBubbleAThirdOfOneForwardOneBackward) {
  for (const int p : depths) {
    for (int m = p; m <= 64; ++m) {
      EXPECT_NEAR(bubble(ScheduleKind::zero_bubble, p, m, 1, {1, 1, 1}),
                  bubble(ScheduleKind::one_forward_one_backward, p, m, 1, {1, 1, 1}) / 3, exactly)
          << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(Simulation, RefusesADeadlock) {
  Schedule schedule = make_schedule(ScheduleKind::one_forward_one_backward, 2, 2);
  std::swap(schedule.steps[0][0], schedule.steps[0][2]);
  EXPECT_THROW(simulate(schedule, ScheduleTimes::uniform(schedule, {})), ConfigError);
}

}  // namespace
}  // namespace trireme::plan
