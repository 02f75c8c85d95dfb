#include "src/train/checkpoint_writer.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/load.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using train::CheckpointWriter;
using train::OnSaveError;

/// Refuses the steps in `broken`.
struct BreakableStore final : checkpoint::MemoryStore {
  std::string begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) override {
    TRIREME_CHECK(!broken.contains(step), IoError, "step {} could not be saved", step);
    return MemoryStore::begin(step, needed_bytes, origin);
  }
  std::set<std::int64_t> broken;
};

/// Training run on this rank alone, and its checkpoints.
struct SavedRun {
  explicit SavedRun(const train::CheckpointWriterOptions& options)
      : run(alone, tiny_run(), {}),
        state(*run.backend, run.trainer.state_tensors(options.optimizer), HostCopies::Allocation::always),
        writer(store, alone, run.trainer, state, {{"dtype", "fp64"}}, blobs, options) {}

  std::vector<std::string> steps() {
    std::vector<std::string> names;
    for (const checkpoint::StepEntry& entry : store.steps()) names.push_back(entry.name);
    return names;
  }
  /// The bytes of this rank's file of step `step`.
  std::vector<std::byte> file(std::int64_t step) { return store.file(store.step_name(step), "rank-00000.h5"); }

  SelfCommunicator alone;
  BreakableStore store;
  TrainingRun run;
  train::HostState state;
  std::map<std::string, std::string> blobs = {{"tokenizer", "tokenizer"}};
  CheckpointWriter writer;
};

TEST(CheckpointWriter, WritesTheSameStepsInTheBackground) {
  SavedRun at_once({});
  SavedRun behind({.asynchronous = true});
  for (int i = 0; i < 2; ++i) {
    at_once.run.step();
    at_once.writer.save();
    behind.run.step();
    behind.writer.save();
  }
  behind.run.step();  // changes the state that is being written
  behind.writer.poll();
  behind.writer.finish();
  EXPECT_EQ(behind.steps(), at_once.steps());
  EXPECT_EQ(behind.steps().size(), 2u);
  for (const std::int64_t step : {1, 2}) EXPECT_EQ(behind.file(step), at_once.file(step)) << step;
  const auto step = checkpoint::open_checkpoint(behind.store, behind.alone);
  const checkpoint::RunDescription description = checkpoint::read_description(*step);
  EXPECT_EQ(description.attributes.get<std::string>("dtype"), "fp64");
  EXPECT_EQ(description.attributes.get<int>("state.iteration"), 2);
  EXPECT_EQ(description.blobs.at("tokenizer"), "tokenizer");
}

TEST(CheckpointWriter, ReportsAStepAsSoonAsItIsInTheStore) {
  SavedRun behind({.asynchronous = true});
  std::vector<std::string> events;
  behind.writer.observe([&](train::SaveEvent event, std::int64_t step) {
    events.push_back(fmt::format("{} {}", event == train::SaveEvent::begun ? "begun" : "arrived", step));
  });
  behind.run.step();
  behind.writer.save();
  // Training goes on, and never saves again.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(4);
  while (events.size() < 2 && std::chrono::steady_clock::now() < limit) behind.writer.poll();
  EXPECT_THAT(events, testing::ElementsAre("begun 1", "arrived 1"));
  behind.writer.finish();
  EXPECT_EQ(events.size(), 2u);
}

TEST(CheckpointWriter, KeepsTheStepsOfAnIntervalAndTheNewest) {
  SavedRun saved({.keep = {.keep_last = 1, .retain_interval = 2}});
  for (int i = 0; i < 5; ++i) {
    saved.run.step();
    saved.writer.save();
  }
  std::vector<std::string> expected;
  for (const std::int64_t step : {5, 4, 2}) expected.push_back(saved.store.step_name(step));
  EXPECT_EQ(saved.steps(), expected);
}

TEST(CheckpointWriter, KeepsTheStepsThatARewindMayNeed) {
  SavedRun saved({.keep = {.keep_last = 1, .rewind_distance = 2}});
  for (int i = 0; i < 5; ++i) {
    saved.run.step();
    saved.writer.save();
  }
  std::vector<std::string> expected;
  for (const std::int64_t step : {5, 4, 3}) expected.push_back(saved.store.step_name(step));
  EXPECT_EQ(saved.steps(), expected);
}

TEST(CheckpointWriter, OmitsTheOptimizerState) {
  SavedRun saved({.optimizer = train::OptimizerState::left_out});
  EXPECT_FALSE(saved.writer.resumable());
  saved.run.step();
  saved.writer.save();
  const auto step = checkpoint::open_checkpoint(saved.store, saved.alone);
  EXPECT_EQ(train::optimizer_state_of(step->manifest().attributes), train::OptimizerState::left_out);
  std::set<std::string> kinds;
  for (const checkpoint::Piece& piece : step->manifest().pieces) {
    kinds.insert(piece.tensor.substr(0, piece.tensor.find('/')));
  }
  EXPECT_THAT(kinds, testing::ElementsAre("model"));
  // A run that resumes from these weights starts with moments of 0.
  TrainingRun fresh(saved.alone, tiny_run(), {});
  EXPECT_THAT([&] { checkpoint::load(*step, saved.alone, fresh.trainer.state_tensors()); },
              ThrowsMessage<CheckpointError>(HasSubstr("adamw_m/")));
  using train::OptimizerState;
  checkpoint::load(*step, saved.alone, fresh.trainer.state_tensors(OptimizerState::left_out));
  fresh.trainer.restore(step->manifest().attributes, OptimizerState::left_out);
  EXPECT_EQ(fresh.trainer.progress(), saved.run.trainer.progress());
  const train::TrainRecord continued = saved.run.step();
  const train::TrainRecord anew = fresh.step();
  EXPECT_EQ(anew.iteration, 2);
  EXPECT_EQ(anew.lm_loss, continued.lm_loss);
  EXPECT_EQ(anew.learning_rate, continued.learning_rate);
  // Adam's first update with new moments has its own bias corrections: it differs from the run's second.
  EXPECT_EQ(anew.grad_norm, continued.grad_norm);
  EXPECT_NE(fresh.step().lm_loss, saved.run.step().lm_loss);
  EXPECT_EQ(train::state_from(fresh.trainer.state_attributes()).updates, 2);
  EXPECT_EQ(train::state_from(saved.run.trainer.state_attributes()).updates, 3);
}

/// Training run on this rank alone, with local steps in a folder and checkpoints in another.
struct LocallySavedRun {
  LocallySavedRun()
      : run(alone, tiny_run(), {}),
        state(*run.backend, run.trainer.state_tensors(), HostCopies::Allocation::always),
        shared(directory / "shared"),
        local(directory / "local"),
        steps(local, alone, 0) {
    writer.emplace(shared, alone, run.trainer, state, Attributes{{"dtype", "fp64"}}, blobs,
                   train::CheckpointWriterOptions{.local = &steps, .lineage = {checkpoint::Branch("a:0"), -1}});
  }
  static std::vector<std::int64_t> numbers(checkpoint::Store& store) {
    std::vector<std::int64_t> steps;
    for (const checkpoint::StepEntry& entry : store.steps()) steps.push_back(entry.step);
    return steps;
  }

  TemporaryDirectory directory;
  SelfCommunicator alone;
  TrainingRun run;
  train::HostState state;
  io::CheckpointStore shared, local;
  checkpoint::LocalSteps steps;
  std::map<std::string, std::string> blobs = {{"tokenizer", "tokenizer"}};
  std::optional<CheckpointWriter> writer;
};

TEST(CheckpointWriter, CopiesLocalStepsToTheStore) {
  LocallySavedRun saved;
  for (int i = 1; i <= 4; ++i) {
    saved.run.step();
    if (i % 2 == 1) {
      saved.writer->save();
    } else {
      saved.writer->save_locally();
    }
  }
  EXPECT_GE(saved.writer->take_local_ms().value(), 0);
  saved.writer->save_locally();  // waits for the step before
  EXPECT_THAT(LocallySavedRun::numbers(saved.local), testing::Contains(4));
  saved.writer->save();
  saved.writer->finish();
  EXPECT_THAT(LocallySavedRun::numbers(saved.shared), testing::ElementsAre(4, 3, 1));
  EXPECT_THAT(LocallySavedRun::numbers(saved.local), testing::IsEmpty());
  const auto step = checkpoint::open_checkpoint(saved.shared, saved.alone);
  TrainingRun loaded(saved.alone, tiny_run(), {});
  checkpoint::load(*step, saved.alone, loaded.trainer.state_tensors());
  loaded.trainer.restore(step->manifest().attributes);
  EXPECT_EQ(loaded.step().lm_loss, saved.run.step().lm_loss);
  const auto lineage = checkpoint::lineage_of(step->manifest().attributes);
  EXPECT_EQ(lineage->branch.text(), "a:0");
  EXPECT_EQ(lineage->base, 3);
}

TEST(CheckpointWriter, SavesToTheStoreWhereLocalStepsCannotBeSaved) {
  LocallySavedRun saved;
  saved.run.step();
  saved.writer->save_locally();
  saved.run.step();
  // A file in place of the folder makes later steps fail, and the first one if its thread still writes it.
  std::filesystem::rename(saved.directory / "local", saved.directory / "moved");
  std::ofstream(saved.directory / "local") << "x";
  saved.writer->save();
  saved.run.step();
  saved.writer->save_locally();
  saved.writer->save();
  saved.writer->finish();
  EXPECT_THAT(LocallySavedRun::numbers(saved.shared), testing::ElementsAre(3, 2));
}

TEST(CheckpointWriter, StopsTheRunThatCannotSave) {
  for (const bool asynchronous : {false, true}) {
    SavedRun saved({.asynchronous = asynchronous});
    saved.store.broken = {0};
    EXPECT_THAT(
        [&] {
          saved.writer.save();
          saved.writer.finish();
        },
        ThrowsMessage<IoError>(HasSubstr("step 0 could not be saved")));
  }
}

TEST(CheckpointWriter, ToleratesAFailedSaveExceptTheLast) {
  for (const bool asynchronous : {false, true}) {
    SCOPED_TRACE(asynchronous);
    SavedRun saved({.asynchronous = asynchronous, .on_error = OnSaveError::warn});
    saved.store.broken = {1, 3};
    const auto train_and_save = [&] {
      saved.run.step();
      saved.writer.save();
    };
    train_and_save();
    train_and_save();
    saved.writer.finish();
    EXPECT_THAT(saved.steps(), testing::ElementsAre(saved.store.step_name(2)));
    train_and_save();
    EXPECT_THROW(saved.writer.finish(), Error);
    EXPECT_THAT(saved.steps(), testing::ElementsAre(saved.store.step_name(2)));
  }
}

}  // namespace
}  // namespace trireme::test
