// Checkpoints of several ranks in one folder.
#include <gmock/gmock.h>

#include <filesystem>
#include <numeric>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"
#include "src/base/error.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/recording_communicator.hpp"
#include "tests/support/checkpoint_model.hpp"
#include "tests/support/counted_step.hpp"
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

TEST_F(RankStore, RanksThatHoldTheSamePiecesReadEachOnceTogether) {
  const int rank = world().rank(), size = world().size(), pair = rank / 2;
  const Shape shape = {12, 5}, narrow = {4, 6}, rows = {2, 6};
  const auto values_from = [](double first, std::int64_t count) {
    std::vector<double> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), first);
    return values;
  };
  on_rank_0([&] {
    std::vector<double> a = values_from(100, 60), b = values_from(200, 24), c = values_from(300, 8);
    const checkpoint::StateTensor tensors[] = {{"a", shape, Box::whole(shape), 0, TensorView(a.data(), shape)},
                                               {"b", narrow, Box::whole(narrow), 0, TensorView(b.data(), narrow)},
                                               {"c", {8}, Box::whole({8}), 0, TensorView(c.data(), {8})}};
    CheckpointStore store(root);
    SelfCommunicator self;
    checkpoint::save(store, self, {10, {}, {}}, tensors);
  });
  // All ranks hold `a`, of which the last is the writer, pairs of ranks the same rows of `b`, and each its part of `c`.
  std::vector<double> a(60), b(12), c(1);
  const checkpoint::StateTensor tensors[] = {
      {"a", shape, Box::whole(shape), 0, TensorView(a.data(), shape), rank == size - 1, 0},
      {"b", narrow, {{2 * pair, 0}, rows}, 0, TensorView(b.data(), rows), false, 1},
      {"c", {8}, Box::whole({8}), rank, TensorView(c.data(), {1}), true, 2}};
  CheckpointStore store(root);
  test::CountedStep step(open_checkpoint(store, world()));
  checkpoint::load(step, world(), tensors);
  EXPECT_EQ(a, values_from(100, 60));
  EXPECT_EQ(b, values_from(200 + 12 * pair, 12));
  EXPECT_EQ(c, values_from(300 + rank, 1));
  constexpr std::int64_t element = sizeof(double);
  EXPECT_EQ(step.bytes_read, element * ((rank == size - 1 ? 60 : 0) + (rank % 2 == 0 ? 12 : 0) + 1));
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

/// Counts the bytes of shards that this rank reads.
struct ByteCountingStore final : CheckpointStore {
  using CheckpointStore::CheckpointStore;
  std::unique_ptr<checkpoint::StepReader> open_with(const std::string& name, const std::string& text) override {
    auto step = std::make_unique<test::CountedStep>(CheckpointStore::open_with(name, text));
    latest = step.get();
    return step;
  }
  test::CountedStep* latest = nullptr;
};

TEST_F(RankStore, FilesKeptInMemoryAreReadOnce) {
  ByteCountingStore store(root);
  save_version(store, world(), 10, 1);
  const auto own_file = static_cast<std::size_t>(world().rank());
  for (const bool fits : {true, false}) {
    const auto step =
        open_checkpoint(store, world(), {}, checkpoint::Verification::at_opening, {}, fits ? 1 << 20 : 99);
    const std::int64_t size_bytes = step->manifest().files[own_file].size_bytes;
    EXPECT_EQ(store.latest->bytes_read, size_bytes);
    test::CutModel model(1);
    checkpoint::load(*step, world(), model.states(world().rank(), world().size()));
    EXPECT_TRUE(model.holds(1, world().rank(), world().size()));
    EXPECT_EQ(store.latest->bytes_read == size_bytes, fits);
  }
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
