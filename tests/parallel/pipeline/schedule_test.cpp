#include "src/parallel/pipeline/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/base/error.hpp"

namespace trireme::parallel {
namespace {

constexpr ScheduleKind one_f_one_b = ScheduleKind::one_forward_one_backward;
const std::vector<Step>& steps_of(const Schedule& schedule, int rank) {
  return schedule.steps[static_cast<std::size_t>(rank)];
}

/// The steps of a rank as text: "F0 F1 B0 B1", with chunks "F0.0 F0.1 F1.0"; halves of a backward are I and W.
std::string text(const std::vector<Step>& steps, bool chunks = false) {
  std::string line;
  for (const Step& step : steps) {
    line += line.empty() ? "" : " ";
    line += "FBIW"[static_cast<int>(step.kind)];
    if (chunks) line += std::to_string(step.chunk) + ".";
    line += std::to_string(step.micro_batch);
  }
  return line;
}

TEST(Schedule, OneForwardOneBackwardOfFourStagesIsThePublishedOne) {
  const Schedule schedule = make_schedule(one_f_one_b, 4, 6);
  EXPECT_EQ(text(schedule.steps[0]), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(text(schedule.steps[1]), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(text(schedule.steps[2]), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(text(schedule.steps[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(Schedule, GPipeDoesAllForwardsFirst) {
  const Schedule schedule = make_schedule(ScheduleKind::gpipe, 3, 3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(text(steps_of(schedule, rank)), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, InterleavedOfTwoStagesIsTheKnownOne) {
  const Schedule schedule = make_schedule(ScheduleKind::interleaved, 2, 4, 2);
  EXPECT_EQ(text(schedule.steps[0], true),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(text(schedule.steps[1], true),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

TEST(Schedule, InterleavedLeavesGapsInALastGroupThatIsNotFull) {
  // As with four micro-batches, without the fourth.
  const Schedule schedule = make_schedule(ScheduleKind::interleaved, 2, 3, 2);
  EXPECT_EQ(text(schedule.steps[0], true), "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 B1.1 F1.2 B0.0 B0.1 B1.2 B0.2");
  EXPECT_EQ(text(schedule.steps[1], true), "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 B0.1 F1.2 B1.2 B0.2");
}

TEST(Schedule, ZeroBubbleDelaysTheWeightsByTheRank) {
  const Schedule schedule = make_schedule(ScheduleKind::zero_bubble, 3, 4);
  EXPECT_EQ(text(schedule.steps[0]), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text(schedule.steps[1]), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(text(schedule.steps[2]), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST(Schedule, EvaluationRunsForwardsOnly) {
  for (const int stages : {1, 2, 5}) {
    const Schedule schedule = make_forward_schedule(stages, 3);
    EXPECT_EQ(schedule.steps.size(), static_cast<std::size_t>(stages));
    for (const auto& steps : schedule.steps) EXPECT_EQ(text(steps), "F0 F1 F2");
  }
  for (const auto& steps : make_forward_schedule(2, 3, 2).steps) {
    EXPECT_EQ(text(steps, true), "F0.0 F0.1 F1.0 F1.1 F0.2 F1.2");
  }
}

TEST(Schedule, ChunksPassFromTheLastRankToTheNextChunkOfTheFirst) {
  const Schedule schedule{2, 2, 1, {}};
  EXPECT_EQ(message_made(schedule, 1, {StepKind::forward, 0, 7}), (Message{false, 0, 1, 7}));
  EXPECT_EQ(message_needed(schedule, 0, {StepKind::forward, 1, 7}), (Message{false, 0, 1, 7}));
  EXPECT_FALSE(message_made(schedule, 1, {StepKind::forward, 1, 7}));
  EXPECT_EQ(message_made(schedule, 0, {StepKind::backward, 1, 7}), (Message{true, 1, 0, 7}));
  EXPECT_EQ(message_needed(schedule, 1, {StepKind::backward_input, 0, 7}), (Message{true, 1, 0, 7}));
  EXPECT_FALSE(message_made(schedule, 0, {StepKind::backward, 0, 7}));
  EXPECT_FALSE(message_made(schedule, 0, {StepKind::backward_weight, 1, 7}));
  EXPECT_FALSE(message_needed(schedule, 0, {StepKind::backward_weight, 1, 7}));
}

}  // namespace
}  // namespace trireme::parallel
