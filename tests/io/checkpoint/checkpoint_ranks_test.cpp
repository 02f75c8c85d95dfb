// Checkpoints of several ranks in one folder.
#include <gmock/gmock.h>

#include <filesystem>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"
#include "src/base/error.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/recording_communicator.hpp"
#include "tests/support/checkpoint_model.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using checkpoint::open_checkpoint;
using test::load_version;
using test::save_version;
using test::world;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Folder of rank 0, shared with all ranks.
class RankStore : public testing::Test {
 protected:
  void SetUp() override {
    if (world().rank() == 0) directory = std::make_unique<test::TemporaryDirectory>();
    root = broadcast_text(world(), directory ? *directory / "run" : "", 0);
  }
  void TearDown() override { world().barrier(); }
  /// Runs on rank 0 while the others wait.
  void on_rank_0(const std::function<void()>& function) {
    world().barrier();
    if (world().rank() == 0) function();
    world().barrier();
  }

  std::unique_ptr<test::TemporaryDirectory> directory;
  std::string root;
};

TEST_F(RankStore, RanksThatHoldTheSameTensorsSendNoDescriptionOfThem) {
  std::vector<float> values(100, static_cast<float>(world().rank()));
  const Shape shape = {100};
  const checkpoint::StateTensor tensor{
      "model/wte", shape, Box::whole(shape), 0, TensorView(values.data(), shape), world().rank() == 0};
  test::RecordingCommunicator counted(world());
  CheckpointStore store(root);
  checkpoint::prepare_saving(store, counted, std::span(&tensor, 1));
  checkpoint::save(store, counted, {10, {}, {}}, std::span(&tensor, 1));
  checkpoint::load(*open_checkpoint(store, counted), counted, std::span(&tensor, 1));
  EXPECT_EQ(counted.bytes_sent, 0u);
  EXPECT_EQ(values, std::vector<float>(100, 0.0F));
}

/// Counts the manifests that this rank reads.
struct CountingStore final : CheckpointStore {
  using CheckpointStore::CheckpointStore;
  std::string manifest_text(const std::string& name) override {
    ++manifests;
    return CheckpointStore::manifest_text(name);
  }
  int manifests = 0;
};

TEST_F(RankStore, OneRankReadsTheManifestOfOneStep) {
  CountingStore store(root);
  for (const int version : {1, 2, 3}) save_version(store, world(), 10 * version, static_cast<std::uint64_t>(version));
  EXPECT_EQ(store.manifests, 0);
  EXPECT_TRUE(checkpoint::has_checkpoint(store, world()));
  EXPECT_EQ(load_version(store, world()), 3u);
  EXPECT_EQ(store.manifests, world().rank() == 0 ? 1 : 0);
}

TEST_F(RankStore, AnotherFolderOnARankIsFound) {
  CheckpointStore store(root);
  save_version(store, world(), 10, 1);
  const test::TemporaryDirectory copy;
  std::filesystem::copy(root, copy / "run", std::filesystem::copy_options::recursive);
  world().barrier();
  save_version(store, world(), 10, 2);
  CheckpointStore other(copy / "run");
  const bool is_last = world().rank() == world().size() - 1;
  const auto load = [&] { return load_version(is_last ? other : store, world()); };
  if (world().size() == 1) {
    EXPECT_EQ(load(), 1u);
  } else {
    EXPECT_THAT(load, ThrowsMessage<Error>(HasSubstr("ranks see different manifests")));
  }
}

TEST_F(RankStore, AnotherNumberOfRanksLoadsTheSame) {
  CheckpointStore store(root);
  save_version(store, world(), 10, 1);
  EXPECT_EQ(names_in(root + "/step-00000010").size(), 1u + static_cast<std::size_t>(world().size()));
  // Half of the ranks, and each rank by itself.
  const int half = std::max(1, world().size() / 2);
  const auto half_world = world().split(world().rank() / half, world().rank(), "half");
  EXPECT_EQ(load_version(store, *half_world), 1u);
  SelfCommunicator self;
  EXPECT_EQ(load_version(store, self), 1u);
  on_rank_0([&] {
    CheckpointStore other(root + "/alone");
    save_version(other, self, 20, 2);
  });
  CheckpointStore other(root + "/alone");
  EXPECT_EQ(load_version(other, world()), 2u);
}

TEST_F(RankStore, PreparingAgreesOnTheFolderAndLocksIt) {
  test::CutModel model(1);
  const auto states = model.states(world().rank(), world().size());
  CheckpointStore store(root);
  checkpoint::prepare_saving(store, world(), states);
  CheckpointStore second(root);
  EXPECT_THAT([&] { checkpoint::prepare_saving(second, world(), states); },
              ThrowsMessage<Error>(HasSubstr("in use by another job")));
  // A folder of each rank's own.
  if (world().size() > 1) {
    CheckpointStore own(root + std::to_string(world().rank()));
    EXPECT_THAT([&] { checkpoint::prepare_saving(own, world(), states); },
                ThrowsMessage<Error>(HasSubstr("all nodes share")));
  }
}

}  // namespace
}  // namespace trireme::io
