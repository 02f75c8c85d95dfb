#include "src/train/timing/rank_times.hpp"

#include <gmock/gmock.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Iteration of 10 ms from `start_us` on, with two micro-batches whose forwards take `forward_ms` each, followed by the
/// forward of an evaluation.
std::vector<TraceSpan> iteration(double start_us, double forward_ms) {
  const auto span = [&](const char* name, const char* category, double begin_ms, double end_ms) {
    return TraceSpan{name, category, -1, -1, start_us + 1000 * begin_ms, start_us + 1000 * end_ms};
  };
  return {span("read samples", "data", 0, 0.25),
          span("forward", "pipeline", 1, 1 + forward_ms),
          span("wait for activation", "communication", 3, 3.5),
          span("forward", "pipeline", 3.5, 3.5 + forward_ms),
          span("backward input", "pipeline", 6, 7),
          span("backward weight", "pipeline", 7, 7.5),
          span("reduce gradients", "communication", 7.5, 8),
          span("optimizer", "update", 8, 9),
          span("iteration", "iteration", 0, 10),
          span("forward", "pipeline", 11, 12)};
}

std::vector<std::string> names(const RankTimes::Report& report) {
  std::vector<std::string> all;
  for (const PartTimes& part : report.parts) all.emplace_back(part.name);
  return all;
}
const PartTimes& part(const RankTimes::Report& report, std::string_view name) {
  return *std::ranges::find(report.parts, name, &PartTimes::name);
}

TEST(RankTimes, AreMeansOfIterationsWithoutEvaluations) {
  SelfCommunicator alone;
  RankTimes times(2);
  times.add(iteration(500, 1), 10, 0);
  times.add(iteration(70000, 2), 10, 0);
  const RankTimes::Report report = times.take(alone);
  EXPECT_EQ(report.iterations, 2);
  EXPECT_THAT(names(report), ElementsAre("forward-backward", "all-grads-sync", "optimizer", "batch-generator",
                                         "forward-compute", "backward-compute", "forward-recv"));
  EXPECT_THAT(part(report, "forward-backward").ms, ElementsAre(testing::DoubleNear(6.5, 1e-9)));
  EXPECT_THAT(part(report, "forward-compute").ms, ElementsAre(testing::DoubleNear(3, 1e-9)));
  EXPECT_THAT(part(report, "backward-compute").ms, ElementsAre(testing::DoubleNear(1.5, 1e-9)));
  EXPECT_EQ(times.take(alone).parts.size(), 0u) << "the times are forgotten";
}

TEST(RankTimes, OfTheFirstLevelLeaveOutTheMicroBatches) {
  SelfCommunicator alone;
  RankTimes times(1);
  times.add(iteration(0, 1), 10, 0);
  EXPECT_THAT(names(times.take(alone)), ElementsAre("forward-backward", "all-grads-sync", "optimizer"));
}

TEST(RankTimes, NameTheRanksWithTheLeastAndTheGreatest) {
  Communicator& world = test::world();
  RankTimes times(2);
  std::vector<TraceSpan> spans = iteration(0, 1 + 0.5 * world.rank());
  // The first rank lacks this part: the second one has the least time.
  if (world.rank() == 0 && world.size() > 1) std::erase_if(spans, [](const TraceSpan& s) { return s.name[0] == 'o'; });
  times.add(spans, 10, 0);
  const RankTimes::Report report = times.take(world);
  const int last = world.size() - 1;
  EXPECT_EQ(part(report, "forward-compute").least, 0);
  EXPECT_EQ(part(report, "forward-compute").greatest, last);
  EXPECT_EQ(part(report, "optimizer").least, last > 0 ? 1 : 0);
  const std::vector<std::string> places = {"rank 0 on node7", "rank 1 on node8"};
  const auto line = [&](TimingOption option) {
    std::string text;
    for (const std::string& each : lines_of(report, option, places)) text += each + "\n";
    return text;
  };
  EXPECT_THAT(line(TimingOption::max),
              HasSubstr(last > 0 ? "forward-compute ................................: 3.00 rank 1 on node8\n"
                                 : "forward-compute ................................: 2.00 rank 0 on node7\n"));
  if (last == 0) return;
  EXPECT_THAT(line(TimingOption::minmax), HasSubstr(": (2.00, 3.00) rank 0 on node7, rank 1 on node8\n"));
  EXPECT_THAT(line(TimingOption::all),
              HasSubstr("  forward-compute:\n     rank 0 on node7: 2.00\n     rank 1 on node8: 3.00\n"));
  EXPECT_THAT(line(TimingOption::all), HasSubstr("  optimizer:\n     rank 1 on node8: 1.00\n"));
}

TEST(RankTimes, TheStragglerIsTheRankThatWaitsLeast) {
  Communicator& world = test::world();
  const bool is_late = world.rank() == world.size() - 1;
  RankTimes times(0);
  for (int i = 0; i < 3; ++i) times.add({}, 10, is_late ? 1 : 5);
  const Straggler straggler = times.take(world).straggler;
  EXPECT_EQ(straggler.rank, world.size() - 1);
  EXPECT_DOUBLE_EQ(straggler.iteration_ms, 10);
  EXPECT_DOUBLE_EQ(straggler.delay_ms, world.size() > 1 ? 4 : 0);
  EXPECT_DOUBLE_EQ(straggler.share(), world.size() > 1 ? 0.4 : 0);
}

}  // namespace
}  // namespace trireme::train
