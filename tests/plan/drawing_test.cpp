#include "src/plan/drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

using parallel::make_schedule;
using parallel::Schedule;
using parallel::ScheduleKind;

std::string text(const Schedule& schedule) {
  return text_of(simulate(schedule, ScheduleTimes::uniform(schedule, {})), schedule);
}

TEST(Drawing, DrawsOneRowPerRankWithTimeAcross) {
  EXPECT_EQ(text(make_schedule(ScheduleKind::one_forward_one_backward, 2, 3)),
            "rank 0 | F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
            "rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  .\n");
  EXPECT_EQ(text(make_schedule(ScheduleKind::zero_bubble, 2, 2)),
            "rank 0 | F0 F1 .  I0 W0 I1 W1\n"
            "rank 1 | .  F0 I0 F1 I1 W0 W1\n");
}

TEST(Drawing, LabelsChunks) {
  EXPECT_EQ(text(make_schedule(ScheduleKind::interleaved, 1, 1, 2)), "rank 0 | F0.0 F1.0 B1.0----- B0.0-----\n");
}

TEST(Drawing, DrawsEveryStep) {
  const Schedule schedule = make_schedule(ScheduleKind::interleaved, 2, 4, 2);
  const std::string svg = svg_of(simulate(schedule, ScheduleTimes::uniform(schedule, {})), schedule);
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, testing::HasSubstr("<title>backward of micro-batch 3, chunk 1: "));
  std::size_t bars = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++bars;
  EXPECT_EQ(bars, 2u * 2 * 2 * 4);
}

}  // namespace
}  // namespace trireme::plan
