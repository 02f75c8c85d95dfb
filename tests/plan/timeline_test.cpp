#include "src/plan/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

/// Two stages, two micro-batches, and an update of 3 ms after a norm of 1 ms.
struct Predicted {
  Job job{{}, {}, {}, parallel::ProcessGrid(4, 1, 2)};
  StepPrediction step;
  Predicted() {
    job.options.global_batch_size = 4;
    const parallel::Schedule schedule = parallel::make_schedule(schedule_of(job), 2, micro_batches_of(job));
    step.schedule = simulate(schedule, ScheduleTimes::uniform(schedule, {}));
    step.work.optimizer = 3;
    step.work.of(Traffic::scalars).exposed_ms = 1;
    step.step_ms = step.schedule.makespan + 5;
  }
};

double total(const std::vector<TraceSpan>& spans, const std::string& name) {
  double sum = 0;
  for (const TraceSpan& span : spans) sum += span.name == name ? span.end_us - span.start_us : 0;
  return sum;
}

TEST(Timeline, HasTheEventsOfATrainingRun) {
  const Predicted predicted;
  const std::vector<TraceSpan> first = spans_of(predicted.job, predicted.step, 0);
  EXPECT_EQ(total(first, "forward"), 2000);
  EXPECT_EQ(total(first, "backward"), 4000);
  EXPECT_EQ(total(first, "wait for gradient"), 3000);  // makespan 9 = 2 + 4 + waits
  EXPECT_EQ(total(first, "wait for activation"), 0);
  EXPECT_EQ(total(first, "reduce gradients"), 1000);
  EXPECT_EQ(total(first, "loss and gradient norm"), 1000);
  EXPECT_EQ(total(first, "optimizer"), 3000);
  EXPECT_EQ(total(first, "iteration"), 14000);
  EXPECT_EQ(total(spans_of(predicted.job, predicted.step, 1), "wait for activation"), 1000);
}

TEST(Timeline, ComparesIterationsAfterTheFirst) {
  const Predicted predicted;
  std::vector<TraceEvent> trace;
  for (int rank = 0; rank < 4; ++rank) {
    for (int iteration = 0; iteration < 3; ++iteration) {
      const double start = iteration * 1e5;
      trace.push_back({rank, "iteration", start, start + (iteration == 0 ? 90000 : 24000)});
      trace.push_back({rank, "optimizer", start + 1, start + 1 + 3000 + 1000 * iteration});
      if (rank == 3) trace.push_back({rank, "read samples", start + 6000, start + 6500});
    }
  }
  const std::vector<EventDifference> rows = compare(predicted.job, predicted.step, trace);
  EXPECT_EQ(rows[0].name, "iteration");
  EXPECT_NEAR(rows[0].difference_ms(), 10, 1e-9);
  for (const EventDifference& row : rows) {
    if (row.name == "optimizer") {
      EXPECT_NEAR(row.measured_ms, 4.5, 1e-9);
      EXPECT_NEAR(row.measured_count, 1, 1e-9);
      EXPECT_EQ(row.predicted_ms, 3);
    }
    if (row.name == "read samples") {
      EXPECT_EQ(row.rank, 3);
    }
    if (row.name == "forward") {
      EXPECT_EQ(row.measured_ms, 0);
    }
  }
}

}  // namespace
}  // namespace trireme::plan
