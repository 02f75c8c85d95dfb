// When a run stops, and what the run that resumes it makes up.
#include "src/train/run.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "io/metrics_file.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/memory_store.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using train::RunEnd;

struct Records final : train::MetricsSink {
  void write(const train::TrainRecord& record) override { losses.push_back(record.lm_loss); }
  void write(const train::EvaluationRecord& record) override {
    evaluated_after.push_back(record.iteration);
    validation.push_back(record.valid_loss);
  }
  std::vector<double> losses;
  std::vector<std::int64_t> evaluated_after;
  std::vector<double> validation;
};

/// Six iterations, with an evaluation of five batches after every second.
RunConfig six_iterations() {
  RunConfig config;
  config.model.layers = 1;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.model.ffn_hidden = 32;
  config.model.vocabulary = 64;
  config.s = 8;
  config.batch = 2;
  config.steps = 15;  // as many batches as the evaluations read
  return config;
}
constexpr train::RunSchedule every_second = {.log_interval = 0, .eval_interval = 2, .eval_iterations = 5};

/// One start of the program on this rank alone: resumes what the store holds, and is asked to stop from the `looks`th
/// time on that it looks for that.
RunEnd start(checkpoint::MemoryStore& store, Records& records, int looks) {
  SelfCommunicator alone;
  TrainingRun run(alone, six_iterations(), {});
  if (checkpoint::has_checkpoint(store, alone)) {
    const auto step = checkpoint::open_checkpoint(store, alone);
    checkpoint::load(*step, alone, run.trainer.state_tensors());
    run.trainer.restore(checkpoint::read_description(*step).attributes);
  }
  train::RunHooks hooks;
  hooks.save = [&] {
    checkpoint::save(store, alone, {run.trainer.progress().iteration, run.trainer.state_attributes(), {}},
                     run.trainer.state_tensors());
  };
  hooks.stop_requested = [&] { return --looks <= 0; };
  hooks.metrics = &records;
  return train::run(run.trainer, alone, 6, *run.data.train, run.data.train.get(), every_second, hooks);
}

constexpr int never = 1000;

TEST(Run, EvaluatesAfterEveryInterval) {
  checkpoint::MemoryStore store;
  Records records;
  EXPECT_EQ(start(store, records, never), RunEnd::complete);
  EXPECT_EQ(records.losses.size(), 6u);
  EXPECT_THAT(records.evaluated_after, testing::ElementsAre(2, 4, 6));
}

// An iteration is followed by one look, an evaluation of five batches has four on its way: those of the run are 1,
// four, 1, 1, four, 1, 1, four; the last iteration has none.
TEST(Run, StopsAtAnyLookAndResumesToTheSameRecords) {
  Records expected;
  {
    checkpoint::MemoryStore store;
    start(store, expected, never);
  }
  constexpr int all_looks = 17;
  for (int looks = 1; looks <= all_looks + 1; ++looks) {
    SCOPED_TRACE(looks);
    checkpoint::MemoryStore store;
    Records records;
    EXPECT_EQ(start(store, records, looks), looks <= all_looks ? RunEnd::stopped_early : RunEnd::complete);
    if (looks >= 2 && looks <= 5) {
      EXPECT_THAT(records.evaluated_after, testing::IsEmpty());
    }
    if (looks <= all_looks) {
      EXPECT_EQ(start(store, records, never), RunEnd::complete);
    }
    EXPECT_EQ(records.losses, expected.losses);
    EXPECT_EQ(records.evaluated_after, expected.evaluated_after);
    EXPECT_EQ(records.validation, expected.validation);
  }
}

TEST(Run, MayBeStoppedAgainInAnEvaluationThatItMakesUp) {
  checkpoint::MemoryStore store;
  Records records;
  EXPECT_EQ(start(store, records, 3), RunEnd::stopped_early);
  EXPECT_EQ(start(store, records, 2), RunEnd::stopped_early);
  EXPECT_EQ(records.losses.size(), 2u);
  EXPECT_THAT(records.evaluated_after, testing::IsEmpty());
  EXPECT_EQ(start(store, records, never), RunEnd::complete);
  EXPECT_THAT(records.evaluated_after, testing::ElementsAre(2, 4, 6));
}

TEST(Run, StopsOnAllRanksInAnEvaluationWhereOneIsSignalled) {
  TrainingRun run(world(), six_iterations(), {});
  int looks = 0;
  train::RunHooks hooks;
  hooks.stop_requested = [&] { return ++looks >= 3 && world().rank() == world().size() - 1; };
  EXPECT_EQ(train::run(run.trainer, world(), 6, *run.data.train, run.data.train.get(), every_second, hooks),
            RunEnd::stopped_early);
  EXPECT_EQ(run.trainer.progress().iteration, 2);
  EXPECT_TRUE(run.trainer.progress().evaluation_left);
}

TEST(MetricsOfARunThatMakesUpAnEvaluation, HoldItOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  train::TrainRecord record;
  {
    io::MetricsFile file(path, 0);
    for (record.iteration = 1; record.iteration <= 2; ++record.iteration) file.write(record);
    file.write(train::EvaluationRecord{2, 1.5, 2.5});
  }
  const auto lines = [&] {
    std::ifstream in(path);
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  };
  { io::MetricsFile file(path, 2); }
  EXPECT_EQ(lines(), 3);
  { io::MetricsFile file(path, 2, true); }
  EXPECT_EQ(lines(), 2);
}

}  // namespace
}  // namespace trireme::test
