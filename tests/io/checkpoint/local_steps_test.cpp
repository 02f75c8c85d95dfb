// Local steps of ranks that stand for nodes: each node has a folder that the others do not open.
#include "src/checkpoint/local_steps.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"
#include "src/comm/host_collectives.hpp"
#include "tests/support/checkpoint_model.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using checkpoint::LocalSteps;
using checkpoint::Manifest;
using test::CutModel;
using test::world;

/// Folder of rank 0 with one folder for each node, by the number of its ranks.
class LocalStepsOfRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (world().rank() == 0) directory_ = std::make_unique<test::TemporaryDirectory>();
    root_ = broadcast_text(world(), directory_ ? directory_->path() : "", 0);
    node_ = world().rank() / GetParam();
    nodes_ = (world().size() + GetParam() - 1) / GetParam();
    begin_job();
  }
  void TearDown() override {
    steps_.reset();
    world().barrier();
  }

  std::string folder(int node) const { return root_ + "/node" + std::to_string(node); }
  /// Opens the folders anew, as the next job does.
  void begin_job() {
    steps_.reset();
    store_.emplace(folder(node_));
    steps_.emplace(*store_, world(), node_);
  }
  /// Saves a version as this step.
  void save(std::int64_t step, std::uint64_t version, std::int64_t also_kept = -1) {
    CutModel model(version);
    model.fill(version);
    steps_->save({step, {{"version", std::to_string(version)}}, {{"tokenizer", "abc"}}},
                 model.states(world().rank(), world().size()), also_kept);
  }
  /// Loads the newest step into another division of the tensors. Returns its number, -1 if there is none.
  std::int64_t load() {
    const auto step = steps_->open([](const Manifest&) { return true; });
    if (!step) return -1;
    steps_->fetch(*step, checkpoint::files_of_blobs(step->manifest()));
    const checkpoint::RunDescription description = checkpoint::read_description(*step);
    const auto version = static_cast<std::uint64_t>(description.attributes.get<std::int64_t>("version"));
    CutModel model(version + 1000);
    const auto states = model.states(world().rank(), world().size());
    steps_->fetch(*step, checkpoint::files_of(step->manifest(), states));
    checkpoint::load(*step, world(), states);
    EXPECT_TRUE(model.holds(version, world().rank(), world().size()));
    EXPECT_EQ(description.blobs.at("tokenizer"), "abc");
    return description.step;
  }
  void on_rank_0(const std::function<void()>& function) {
    world().barrier();
    if (world().rank() == 0) function();
    world().barrier();
  }
  std::string file(int node, std::int64_t step, int rank) const {
    return fmt::format("{}/step-{:08}/{}", folder(node), step, checkpoint::shard_name(rank));
  }
  static void flip_byte(const std::string& path) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-1, std::ios::end);
    const char last = static_cast<char>(stream.get());
    stream.seekp(-1, std::ios::end);
    stream.put(static_cast<char>(last ^ 1));
    ASSERT_TRUE(stream.good()) << path;
  }

  std::unique_ptr<test::TemporaryDirectory> directory_;
  std::string root_;
  int node_ = 0, nodes_ = 1;
  std::optional<CheckpointStore> store_;
  std::optional<LocalSteps> steps_;
};

TEST_P(LocalStepsOfRanks, KeepTheLastTwoWithTheFilesOfTwoNodes) {
  for (const std::int64_t step : {10, 20, 30}) save(step, 1 + static_cast<std::uint64_t>(step));
  world().barrier();
  const auto ranks = [&](int node) { return std::min(GetParam(), world().size() - node * GetParam()); };
  const int previous = (node_ + nodes_ - 1) % nodes_;
  const int files = ranks(node_) + (nodes_ > 1 ? ranks(previous) : 0);
  EXPECT_THAT(names_in(folder(node_)), testing::ElementsAre(".lock", "LATEST", "step-00000020", "step-00000030"));
  EXPECT_EQ(std::ssize(names_in(folder(node_) + "/step-00000030")), 1 + files);
  save(40, 4, 20);
  world().barrier();
  EXPECT_THAT(names_in(folder(node_)),
              testing::ElementsAre(".lock", "LATEST", "step-00000020", "step-00000030", "step-00000040"))
      << "a step that is still copied stays";
  world().barrier();
  steps_->clear();
  world().barrier();
  EXPECT_THAT(names_in(folder(node_)), testing::ElementsAre(".lock"));
}

/// Has no room for its lock.
struct FullStore final : CheckpointStore {
  using CheckpointStore::CheckpointStore;
  std::string claim(std::int64_t) override { throw IoError("there is no room"); }
};

TEST_P(LocalStepsOfRanks, AreNotRemovedWithoutALock) {
  save(1, 1);
  FullStore full(folder(node_));
  LocalSteps others(full, world(), node_);
  CutModel model(2);
  EXPECT_THROW(others.prepare(model.states(world().rank(), world().size()), -1), Error);
  others.clear();
  world().barrier();
  EXPECT_EQ(load(), 1);
}

TEST_P(LocalStepsOfRanks, SurviveTheLossOfAnyNode) {
  for (int lost = 0; lost < nodes_; ++lost) {
    SCOPED_TRACE(lost);
    save(10, 1);
    save(20, 2);
    steps_.reset();
    store_.reset();
    on_rank_0([&] { std::filesystem::remove_all(folder(lost)); });
    begin_job();
    EXPECT_EQ(load(), nodes_ > 1 ? 20 : -1);
    // The node has the files of its ranks again.
    begin_job();
    EXPECT_EQ(load(), nodes_ > 1 ? 20 : -1);
    steps_->clear();
  }
}

TEST_P(LocalStepsOfRanks, ReplaceDamagedFilesByCopiesOrTheStepBefore) {
  save(10, 1);
  save(20, 2);
  const int rank = world().size() - 1, node = rank / GetParam();
  on_rank_0([&] { flip_byte(file(node, 20, rank)); });
  EXPECT_EQ(load(), nodes_ > 1 ? 20 : 10);
  // Loading left more copies on nodes that read the file.
  steps_->clear();
  save(10, 1);
  save(20, 2);
  on_rank_0([&] {
    if (nodes_ == 1) return flip_byte(file(node, 20, rank));
    flip_byte(file(node, 20, rank));
    flip_byte(file((node + 1) % nodes_, 20, rank));
  });
  EXPECT_EQ(load(), 10);
  on_rank_0([&] { std::filesystem::resize_file(file(node, 10, rank), 100); });
  EXPECT_EQ(load(), nodes_ > 1 ? 10 : -1);
}

TEST_P(LocalStepsOfRanks, ReplaceADamagedManifestByThatOfAnotherNode) {
  save(10, 1);
  save(20, 2);
  on_rank_0([&] { flip_byte(folder(0) + "/step-00000020/" + manifest_name); });
  EXPECT_EQ(load(), nodes_ > 1 ? 20 : 10);
}

TEST_P(LocalStepsOfRanks, OfferOnlyStepsThatAreAccepted) {
  save(10, 1);
  save(20, 2);
  const auto open = [&](const char* version) {
    const auto step = steps_->open(
        [&](const Manifest& manifest) { return manifest.attributes.get<std::string>("version") == version; });
    return step ? step->manifest().step : -1;
  };
  EXPECT_EQ(open("1"), 10);
  EXPECT_EQ(open("3"), -1);
  // A start from step 10 removes the steps that it leaves.
  CutModel model(1);
  steps_->prepare(model.states(world().rank(), world().size()), 10);
  EXPECT_EQ(load(), 10);
}

TEST_P(LocalStepsOfRanks, AreCopiedToASharedStoreByteForByte) {
  save(10, 1);
  CheckpointStore shared(root_ + "/shared"), direct(root_ + "/direct");
  {
    const auto step = steps_->open_saved(10);
    checkpoint::copy_step(shared, world(), *step);
  }
  CutModel model(1);
  model.fill(1);
  checkpoint::save(direct, world(), {10, {{"version", "1"}}, {{"tokenizer", "abc"}}},
                   model.states(world().rank(), world().size()));
  world().barrier();
  for (const std::string& name : names_in(root_ + "/direct/step-00000010")) {
    EXPECT_EQ(test::content_of(root_ + "/shared/step-00000010/" + name),
              test::content_of(root_ + "/direct/step-00000010/" + name))
        << name;
  }
  EXPECT_EQ(names_in(root_ + "/shared/step-00000010"), names_in(root_ + "/direct/step-00000010"));
  world().barrier();
}

INSTANTIATE_TEST_SUITE_P(RanksOfANode, LocalStepsOfRanks, testing::Values(1, 2));

}  // namespace
}  // namespace trireme::io
