// Stops of a run, and the evaluations that the resuming run repeats.
#include "src/train/run.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "io/metrics/metrics_file.hpp"
#include "src/checkpoint/load.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using train::RunEnd;

struct Records final : train::MetricsSink {
  void write(const train::TrainRecord& record) override { losses.push_back(record.lm_loss); }
  void write(const train::EvaluationRecord& record) override {
    if (record.split == data::Split::test) {
      tests.push_back(record.loss);
      return;
    }
    sets.push_back(record.set);
    evaluated_after.push_back(record.iteration);
    validation.push_back(record.loss);
  }
  void write(const train::SampleRecord& record) override { sampled_after.push_back(record.iteration); }
  void write(const train::TaskRecord& record) override { tasks_after.push_back(record.iteration); }
  void write(const train::RewindRecord&) override {}
  std::vector<double> losses;
  std::vector<std::int64_t> evaluated_after;
  std::vector<std::int64_t> sampled_after;
  std::vector<std::int64_t> tasks_after;
  std::vector<double> validation;
  std::vector<double> tests;
  std::vector<std::string> sets;  // names of the evaluated sets
};

/// Six iterations, with an evaluation of five batches after every second and a test of five at the end.
TrainingRunConfig six_iterations() {
  TrainingRunConfig config = tiny_run();
  config.steps = 15;  // batches that the evaluations read
  return config;
}
constexpr train::RunSchedule every_second = {
    .log_interval = 0, .eval_interval = 2, .eval_iterations = 5, .tasks_interval = 4};

/// Samples of all three splits.
data::SampleSplits three_splits() {
  data::GptDataOptions options = TrainingRun::data_options(six_iterations());
  const std::int64_t all = options.budgets[0].train;
  options.budgets = {{all, all, all}};
  return data::make_gpt_data({{synthetic_tokens(six_iterations()), 1.0}}, options);
}

/// Counts the steps that are saved.
struct CountingStore final : checkpoint::MemoryStore {
  void commit(const std::string& staging, const checkpoint::Manifest& manifest) override {
    MemoryStore::commit(staging, manifest);
    ++commits;
  }
  int commits = 0;
};

/// Starts the program on this rank alone, and resumes the run in the store. The request to stop is visible from poll
/// number `looks` on. Saves to `other`, if given.
RunEnd start(checkpoint::MemoryStore& store, Records& records, int looks,
             const data::SampleSplits& data = three_splits(), checkpoint::MemoryStore* other = nullptr) {
  SelfCommunicator alone;
  TrainingRun run(alone, six_iterations(), {});
  if (checkpoint::has_checkpoint(store, alone)) {
    const auto step = checkpoint::open_checkpoint(store, alone);
    checkpoint::load(*step, alone, run.trainer.state_tensors());
    run.trainer.restore(checkpoint::read_description(*step).attributes);
  }
  train::HostState state(*run.backend, run.trainer.state_tensors());
  const std::map<std::string, std::string> blobs;
  train::CheckpointWriter checkpoints(other != nullptr ? *other : store, alone, run.trainer, state, {}, blobs,
                                      {.continues = other == nullptr});
  train::RunHooks hooks;
  hooks.checkpoints = &checkpoints;
  hooks.stop_requested = [&] { return --looks <= 0; };
  hooks.metrics = &records;
  hooks.measure_tasks = [] { return std::vector<train::TaskRecord>{{.task = "one", .figures = {{"acc", 0.5}}}}; };
  return train::run(run.trainer, alone, 6, data, every_second, hooks);
}

constexpr int never = 1000;

TEST(Run, EvaluatesAfterEveryInterval) {
  checkpoint::MemoryStore store;
  Records records;
  EXPECT_EQ(start(store, records, never), RunEnd::complete);
  EXPECT_EQ(records.losses.size(), 6u);
  EXPECT_THAT(records.evaluated_after, testing::ElementsAre(2, 4, 6));
  EXPECT_THAT(records.tasks_after, testing::ElementsAre(4, 6));
  EXPECT_EQ(records.tests.size(), 1u);
}

/// The three splits, the validation split once more as the set "again", and another text as the set "other".
data::SampleSplits with_validation_sets() {
  TrainingRunConfig other = six_iterations();
  other.model.vocabulary = 7;
  data::GptDataOptions options = TrainingRun::data_options(other);
  options.budgets = {{0, options.budgets[0].train, 0}};
  data::SampleSplits data = three_splits();
  data.valid_sets.push_back({"again", three_splits().valid});
  data.valid_sets.push_back({"other", data::make_gpt_data({{synthetic_tokens(other), 1.0}}, options).valid});
  return data;
}

TEST(Run, MeasuresEachValidationSetByItself) {
  Records expected;
  {
    checkpoint::MemoryStore store;
    EXPECT_EQ(start(store, expected, never, with_validation_sets()), RunEnd::complete);
  }
  EXPECT_THAT(expected.evaluated_after, testing::ElementsAre(2, 2, 2, 4, 4, 4, 6, 6, 6));
  EXPECT_THAT(expected.sets, testing::ElementsAre("", "again", "other", "", "again", "other", "", "again", "other"));
  for (std::size_t i = 0; i < 9; i += 3) {
    EXPECT_EQ(expected.validation[i], expected.validation[i + 1]);
    EXPECT_NE(expected.validation[i], expected.validation[i + 2]);
  }
  // If it is stopped in any of the first three evaluations, all three are repeated.
  for (int looks = 2; looks <= 13; ++looks) {
    SCOPED_TRACE(looks);
    checkpoint::MemoryStore store;
    Records stopped, resumed;
    EXPECT_EQ(start(store, stopped, looks, with_validation_sets()), RunEnd::stopped_early);
    EXPECT_EQ(start(store, resumed, never, with_validation_sets()), RunEnd::complete);
    EXPECT_EQ(resumed.validation, expected.validation);
    EXPECT_EQ(resumed.tests, expected.tests);
  }
  // Validation may consist of validation sets only.
  data::SampleSplits alone = with_validation_sets();
  alone.valid = nullptr;
  checkpoint::MemoryStore store;
  Records records;
  start(store, records, never, alone);
  EXPECT_THAT(records.sets, testing::ElementsAre("again", "other", "again", "other", "again", "other"));
}

// An iteration is followed by one poll, and an evaluation of five batches has four. So the run polls 1, four, 1, 1,
// four, 1, 1, four times, and four times in the test; the last iteration has no poll.
TEST(Run, StopsAtAnyPollAndResumesToTheSameRecords) {
  Records expected;
  {
    checkpoint::MemoryStore store;
    start(store, expected, never);
  }
  constexpr int all_looks = 21;
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
    EXPECT_EQ(records.tests, expected.tests);
  }
}

TEST(Run, TestsOnceHoweverOftenItIsRestarted) {
  CountingStore store;
  Records records;
  EXPECT_EQ(start(store, records, 18), RunEnd::stopped_early);  // first poll of the test
  EXPECT_EQ(records.validation.size(), 3u);
  EXPECT_THAT(records.tests, testing::IsEmpty());
  store.commits = 0;
  EXPECT_EQ(start(store, records, never), RunEnd::complete);
  EXPECT_EQ(records.tests.size(), 1u);
  EXPECT_EQ(store.commits, 1);  // saves the current state under the same step
  EXPECT_EQ(start(store, records, never), RunEnd::complete);
  EXPECT_EQ(records.tests.size(), 1u);
  EXPECT_EQ(store.commits, 1);
}

TEST(Run, WithoutTrainingEvaluatesAlone) {
  checkpoint::MemoryStore store;
  Records whole;
  start(store, whole, never);
  SelfCommunicator alone;
  TrainingRun run(alone, six_iterations(), {});
  const auto step = checkpoint::open_checkpoint(store, alone);
  checkpoint::load(*step, alone, run.trainer.state_tensors());
  run.trainer.restore(checkpoint::read_description(*step).attributes);
  train::RunSchedule schedule = every_second;
  schedule.skip_training = true;
  Records records;
  train::RunHooks hooks;
  hooks.metrics = &records;
  EXPECT_EQ(train::run(run.trainer, alone, 100, three_splits(), schedule, hooks), RunEnd::complete);
  EXPECT_THAT(records.losses, testing::IsEmpty());
  EXPECT_THAT(records.evaluated_after, testing::ElementsAre(6));
  EXPECT_EQ(records.validation.at(0), whole.validation.back());
  EXPECT_EQ(records.tests, whole.tests);
  EXPECT_EQ(run.trainer.progress().iteration, 6);
}

TEST(Run, WithoutSavingIsDoneAfterAPlannedStopOnly) {
  train::RunSchedule schedule;
  schedule.exit_interval = 2;
  const auto end = [&](bool signalled) {
    SelfCommunicator alone;
    TrainingRun run(alone, six_iterations(), {});
    train::RunHooks hooks;
    hooks.stop_requested = [&] { return signalled; };
    const RunEnd result = train::run(run.trainer, alone, 6, three_splits(), schedule, hooks);
    EXPECT_EQ(run.trainer.progress().iteration, signalled ? 1 : 2);
    return result;
  };
  EXPECT_EQ(end(false), RunEnd::complete);
  EXPECT_EQ(end(true), RunEnd::stopped_early);
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

TEST(Run, SavesTheStateOfAnotherStoreIfItIsStoppedBeforeAnIteration) {
  checkpoint::MemoryStore store, other;
  Records records;
  EXPECT_EQ(start(store, records, 3), RunEnd::stopped_early);
  EXPECT_EQ(start(store, records, 2, three_splits(), &other), RunEnd::stopped_early);
  EXPECT_EQ(other.steps().size(), 1u);
  EXPECT_EQ(start(other, records, never), RunEnd::complete);
  EXPECT_EQ(records.losses.size(), 6u);
  EXPECT_THAT(records.evaluated_after, testing::ElementsAre(2, 4, 6));
}

TEST(Run, StopsOnAllRanksInAnEvaluationWhereOneIsSignalled) {
  TrainingRun run(world(), six_iterations(), {});
  int looks = 0;
  train::RunHooks hooks;
  hooks.stop_requested = [&] { return ++looks >= 3 && world().rank() == world().size() - 1; };
  EXPECT_EQ(train::run(run.trainer, world(), 6, three_splits(), every_second, hooks), RunEnd::stopped_early);
  EXPECT_EQ(run.trainer.progress().iteration, 2);
  EXPECT_TRUE(run.trainer.progress().evaluation_left);
}

TEST(MetricsOfARunThatMakesUpAnEvaluation, ContainItOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  train::TrainRecord record;
  {
    io::MetricsFile file(path);
    for (record.iteration = 1; record.iteration <= 2; ++record.iteration) file.write(record);
    file.write(train::EvaluationRecord{2, 1.5, 2.5});
    file.write(train::EvaluationRecord{2, 3.5, 4.5, data::Split::test});
  }
  const auto lines_after = [&](const train::Progress& done) {
    io::MetricsFile(path).begin(done);
    return std::ranges::count(content_of(path), '\n');
  };
  EXPECT_EQ(lines_after({.iteration = 2, .tested = true}), 4);
  EXPECT_EQ(lines_after({.iteration = 2}), 3);
  EXPECT_EQ(lines_after({.iteration = 2, .evaluation_left = true}), 2);
}

TEST(MetricsOfARunThatContinues, KeepEveryLineThatIsNotRewritten) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  const std::string first =
      "{\"iteration\": 1, \"lm_loss\": 5, \"elapsed_ms\": 4}\nhalf a li{\"iteration\": 2, \"lm_loss\": 4}\n";
  const std::string second = "{\"iteration\": 2, \"valid_loss\": 4}\n\n";
  std::ofstream(path) << first << "{\"iteration\": 3, \"lm_loss\": 3, \"elapsed_ms\": 2.5}\n"
                      << second << "{\"iteration\": 4, \"lm_loss\": 3, \"elapsed_ms\": 1}\n{\"iteration\": 1, ";
  const std::string before = content_of(path);
  {
    io::MetricsFile file(path);
    EXPECT_EQ(content_of(path), before) << "a file that is opened";
    const io::EarlierIterations earlier = file.begin({.iteration = 2});
    EXPECT_THAT(earlier.kept_ms, testing::ElementsAre(4));
    EXPECT_EQ(earlier.lost, 2);
    EXPECT_EQ(earlier.lost_ms, 3.5);
  }
  EXPECT_EQ(content_of(path), first + second);
  io::MetricsFile(path).begin({});
  EXPECT_EQ(content_of(path), "") << "a run from the start";
}

TEST(MetricsOfARun, DoNotReplaceAFileOfOtherContent) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  for (const char* content : {"{\"text\": \"a\"}\n", "\x89HDF\n\n", "{\"iterations\": 1}\n"}) {
    std::ofstream(path) << content;
    for (const std::int64_t iteration : {0, 2}) {
      EXPECT_THAT([&] { io::MetricsFile(path).begin({.iteration = iteration}); },
                  testing::ThrowsMessage<ConfigError>(testing::HasSubstr("holds no records of a run")));
      EXPECT_EQ(content_of(path), content);
    }
  }
  for (const char* content : {"", "{\"it", "{\"iteration\": 1, \"lm_loss\": ", "a note\n{\"iteration\": 1}\n"}) {
    std::ofstream(path) << content;
    io::MetricsFile(path).begin({});
    EXPECT_EQ(content_of(path), "") << content;
  }
}

}  // namespace
}  // namespace trireme::test
