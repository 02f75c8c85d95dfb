// Spikes of the loss, after which a run goes back to a checkpoint and leaves out the samples since.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"
#include "src/checkpoint/load.hpp"
#include "src/train/run.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test::rewinding {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(SpikeHistory, ComparesALossWithTheMeanOfTheLastThatWereNotHigh) {
  const train::RewindOptions options{.z_score = 2, .iterations = 2, .window = 4};
  train::SpikeHistory history;
  std::int64_t iteration = 0;
  const auto add = [&](double loss, bool is_bad = false) {
    history.add(++iteration, loss, is_bad, options);
    return history.is_spike(options);
  };
  for (const double loss : {1.0, 2.0, 3.0}) EXPECT_FALSE(add(loss));
  EXPECT_FALSE(add(100)) << "too few losses before";
  for (const double loss : {1.0, 2.0, 3.0, 4.0}) EXPECT_FALSE(add(loss));
  EXPECT_EQ(history.moments().mean, 2.5);
  EXPECT_EQ(history.moments().deviation, std::sqrt(1.25));
  EXPECT_FALSE(add(2.5 + 2 * std::sqrt(1.25) + 1e-9));
  EXPECT_TRUE(history.is_next_spike(options));
  EXPECT_EQ(history.first_high(), 9);
  EXPECT_FALSE(add(2.5 + 2 * std::sqrt(1.25) - 1e-9)) << "not in a row";
  EXPECT_FALSE(add(std::numeric_limits<double>::quiet_NaN()));
  Attributes attributes;
  history.put(attributes);
  EXPECT_EQ(train::SpikeHistory::from(attributes), history);
  EXPECT_TRUE(add(2.5, true));
  EXPECT_EQ(history.first_high(), 11);
  history.add({{.from = 7, .to = 3, .first_sample = 6, .end_sample = 14}}, {12, 9, 18, 24});
  history.put(attributes);
  EXPECT_EQ(attributes.texts().at("state.rewinds"), "7:3:6:14 12:9:18:24");
  EXPECT_EQ(train::SpikeHistory::from(attributes), history);
  for (const char* text : {"7:3:6", "3:7:6:14", "7:3:14:6", "7:3:6:x", "7:-3:6:14"}) {
    attributes.put("state.rewinds", text);
    EXPECT_THROW(train::SpikeHistory::from(attributes), CheckpointError) << text;
  }
}

struct Records final : train::MetricsSink {
  void write(const train::TrainRecord& record) override { losses[record.iteration] = record.lm_loss; }
  void write(const train::EvaluationRecord&) override {}
  void write(const train::SampleRecord&) override {}
  void write(const train::TaskRecord&) override {}
  void write(const train::RewindRecord& record) override { rewinds.push_back(record); }
  /// Losses after an iteration.
  std::vector<double> after(std::int64_t iteration) const {
    std::vector<double> values;
    for (auto i = losses.upper_bound(iteration); i != losses.end(); ++i) values.push_back(i->second);
    return values;
  }
  std::map<std::int64_t, double> losses;
  std::vector<train::RewindRecord> rewinds;
};

constexpr std::int64_t iterations = 60, batch = 4, save_interval = 5, first_high = 41;

TrainingRunConfig config_of(const train::GuardOptions& guards) {
  TrainingRunConfig config = tiny_run();
  config.batch = batch;
  config.steps = iterations;
  train::TrainOptions options = train_options(config);
  options.lr_schedule.maximum = options.lr_schedule.minimum = 0.02;
  options.guards = guards;
  config.train = options;
  return config;
}

/// Four tokens in random order; from iteration `first_high` to `last_high` others, which occur nowhere else.
data::SampleSplits samples(std::int64_t last_high) {
  const TrainingRunConfig config = config_of({});
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < iterations * batch * config.s + 1; ++i) {
    const std::int64_t iteration = i / (batch * config.s) + 1;
    const bool is_high = iteration >= first_high && iteration <= last_high;
    const auto random = splitmix64(fnv1a("tokens"), static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<std::int32_t>(is_high ? 32 + random % 32 : random % 4));
  }
  data::CorpusInfo info;
  info.tokenizer = "formula";
  info.vocabulary_size = config.model.vocabulary;
  return data::make_gpt_data(
      {{std::make_shared<data::MemoryTokenStore>(info, std::vector<std::vector<std::int32_t>>{tokens}), 1.0}},
      TrainingRun::data_options(config));
}

/// A checkpoint folder in which a call on some rank may fail, like all later ones: the process is dead.
struct MortalStore final : io::CheckpointStore {
  using CheckpointStore::CheckpointStore;
  std::string begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) override {
    live();
    return CheckpointStore::begin(step, needed_bytes, origin);
  }
  checkpoint::ShardFile write_shard(const std::string& staging, const std::string& file_name,
                                    std::span<const checkpoint::ShardDataset> datasets) override {
    live();
    return CheckpointStore::write_shard(staging, file_name, datasets);
  }
  void commit(const std::string& staging, const checkpoint::Manifest& manifest) override {
    live();
    CheckpointStore::commit(staging, manifest);
  }
  void abandon(const std::string&) noexcept override {}
  std::vector<checkpoint::StepEntry> steps() override {
    live();
    return CheckpointStore::steps();
  }
  std::unique_ptr<checkpoint::StepReader> open_with(const std::string& name, const std::string& text) override {
    live();
    return CheckpointStore::open_with(name, text);
  }
  void remove(const std::string& name) override {
    live();
    CheckpointStore::remove(name);
  }
  void live() {
    if (is_armed) TRIREME_CHECK(++calls < dies_at, EnvironmentError, "killed");
  }
  bool is_armed = false;
  int calls = 0;
  int dies_at = std::numeric_limits<int>::max();
};

class RewindTest : public testing::Test {
 protected:
  void SetUp() override {
    if (world().rank() == 0) directory = std::make_unique<TemporaryDirectory>();
    root = broadcast_text(world(), directory ? directory->path() : "", 0);
  }
  void TearDown() override { world().barrier(); }

  static train::GuardOptions guards(int max_rewinds = 5) {
    return {.rewinds = train::RewindOptions{
                .z_score = 8, .iterations = 3, .window = 16, .distance = 4, .max_rewinds = max_rewinds}};
  }
  static Layout layout() { return world().size() == 4 ? Layout("tp 2 zero1") : Layout("zero1"); }
  std::string path(const std::string& run) const { return root + "/" + run; }
  std::vector<std::string> steps(const std::string& run) const {
    std::vector<std::string> names = io::names_in(path(run));
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("step-"); });
    return names;
  }
  void copy(const std::string& from, const std::string& to) const {
    world().barrier();
    if (world().rank() == 0) fs::copy(path(from), path(to), fs::copy_options::recursive);
    world().barrier();
  }

  struct Attempt {
    train::GuardOptions guards = RewindTest::guards();
    std::int64_t last_high = first_high + 2;
    std::int64_t exit_interval = 0;
    std::string starts_from{};  ///< another run's step; empty: continues from the newest of this one
    bool asynchronous = false;
    int dies_at = std::numeric_limits<int>::max();  ///< call of the store after the spike
  };
  /// Trains in the folder `run`. Returns the bytes of this rank's state at the end. Collective.
  std::vector<std::byte> train(const std::string& run, Records& records, const Attempt& attempt) {
    MortalStore store(path(run));
    store.dies_at = attempt.dies_at;
    TrainingRun training(world(), config_of(attempt.guards), layout());
    const bool continues = attempt.starts_from.empty();
    io::CheckpointStore others(path(continues ? run : fs::path(attempt.starts_from).parent_path().string()));
    if (checkpoint::has_checkpoint(others, world())) {
      const auto step = checkpoint::open_checkpoint(others, world(),
                                                    continues ? "" : fs::path(attempt.starts_from).filename().string());
      checkpoint::load(*step, world(), training.trainer.state_tensors());
      training.trainer.restore(checkpoint::read_description(*step).attributes);
    }
    train::HostState state(
        *training.backend, training.trainer.state_tensors(),
        attempt.asynchronous ? HostCopies::Allocation::always : HostCopies::Allocation::where_needed);
    const std::map<std::string, std::string> blobs;
    train::CheckpointWriter checkpoints(store, world(), training.trainer, state, {}, blobs,
                                        {.asynchronous = attempt.asynchronous, .continues = continues});
    train::RunHooks hooks;
    hooks.checkpoints = &checkpoints;
    hooks.metrics = &records;
    hooks.after_step = [&](const train::TrainRecord& record) { store.is_armed |= record.iteration == first_high + 2; };
    const train::RunSchedule schedule{
        .eval_iterations = 0, .save_interval = save_interval, .exit_interval = attempt.exit_interval};
    train::run(training.trainer, world(), iterations, samples(attempt.last_high), schedule, hooks);
    std::vector<std::byte> bytes;
    for (const checkpoint::StateTensor& tensor : training.trainer.state_tensors()) {
      bytes.insert(bytes.end(), tensor.data.data(), tensor.data.data() + tensor.data.size_bytes());
    }
    return bytes;
  }

  std::unique_ptr<TemporaryDirectory> directory;
  std::string root;
};

TEST_F(RewindTest, GivesTheRunOfItsCheckpointWithoutTheSamplesSince) {
  Records records;
  const std::vector<std::byte> state = train("spiky", records, {});
  ASSERT_EQ(records.rewinds.size(), 1u);
  const train::RewindRecord& record = records.rewinds[0];
  EXPECT_EQ(record.first_high, first_high);
  EXPECT_EQ(record.rewind, (train::Rewind{.from = 43, .to = 35, .first_sample = 140, .end_sample = 172}));
  EXPECT_EQ(record.loss, records.losses.at(43));
  EXPECT_GT(record.loss, record.before.mean + 8 * record.before.deviation);
  std::vector<std::string> expected;
  for (const int step : {5, 10, 15, 20, 25, 30, 35, 43, 45, 50, 55, 60}) {
    expected.push_back(fmt::format("step-{:08}", step));
  }
  EXPECT_EQ(steps("spiky"), expected);

  Attempt other{.starts_from = "spiky/step-00000035"};
  for (std::int64_t i = 36; i <= 43; ++i) other.guards.iterations_to_skip.insert(i);
  Records of_other;
  EXPECT_EQ(train("other", of_other, other), state);
  EXPECT_EQ(of_other.after(43), records.after(43));
  EXPECT_EQ(of_other.rewinds.size(), 0u);

  Records asynchronous;
  EXPECT_EQ(train("asynchronous", asynchronous, {.asynchronous = true}), state);
  EXPECT_EQ(steps("asynchronous"), expected);

  // A run that is stopped after the rewind, and resumed.
  Records resumed;
  train("resumed", resumed, {.exit_interval = 48});
  EXPECT_EQ(train("resumed", resumed, {}), state);
  EXPECT_EQ(resumed.losses, records.losses);
  EXPECT_EQ(resumed.rewinds.size(), 1u);
}

TEST_F(RewindTest, KilledAtAnyCallOfTheStoreIsMadeUpFor) {
  Records expected;
  train("begun", expected, {.exit_interval = 40});
  copy("begun", "whole");
  const std::vector<std::byte> state = train("whole", expected, {});
  ASSERT_EQ(expected.rewinds.size(), 1u);
  int killed = 0;
  constexpr int calls_of_a_rewind = 8;  // the next one belongs to a later save
  for (int dies_at = 1; dies_at <= calls_of_a_rewind + 1; ++dies_at) {
    SCOPED_TRACE(dies_at);
    const std::string run = fmt::format("killed-{}", dies_at);
    copy("begun", run);
    Records records;
    try {
      train(run, records, {.dies_at = dies_at});
    } catch (const Error&) {
      ++killed;
    }
    EXPECT_EQ(train(run, records, {}), state);
    EXPECT_EQ(records.after(43), expected.after(43));
    EXPECT_EQ(steps(run), steps("whole"));
  }
  EXPECT_EQ(killed, calls_of_a_rewind + 1);
}

TEST_F(RewindTest, EndsTheRunAfterTooManyOrWithoutACheckpoint) {
  const Attempt lasting{.guards = guards(2), .last_high = iterations};
  Records records;
  const std::string message = "a spike of the loss from iteration 47 to 49: not finite, or above the mean ";
  for (int attempt = 0; attempt < 2; ++attempt) {  // also of a run that is started again
    EXPECT_THAT([&] { train("lasting", records, lasting); },
                ThrowsMessage<NumericalError>(testing::AllOf(HasSubstr(message), HasSubstr("after 2 rewinds"))));
  }
  ASSERT_EQ(records.rewinds.size(), 2u);
  EXPECT_EQ(records.rewinds[1].rewind, (train::Rewind{.from = 46, .to = 35, .first_sample = 140, .end_sample = 184}));

  Attempt early;
  early.guards.rewinds->distance = 40;
  EXPECT_THAT([&] { train("early", records, early); },
              ThrowsMessage<NumericalError>(HasSubstr("no checkpoint of this run is older by <rewind_distance> 40")));
}

}  // namespace
}  // namespace trireme::test::rewinding
