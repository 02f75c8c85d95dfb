#include "io/checkpoint/checkpoint_store.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_shard.hpp"
#include "io/h5/file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/error.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/support/checkpoint_model.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using checkpoint::open_checkpoint;
using test::load_version;
using test::save_version;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

void write_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
std::string read_file(const std::string& path) { return read_whole_file(path, 1 << 30); }

class StoreTest : public testing::Test {
 protected:
  void save(std::int64_t step, std::uint64_t version, int keep_last = 0) {
    CheckpointStore store(root);
    save_version(store, world, step, version, keep_last);
  }
  std::uint64_t load(const std::string& name = {}) {
    CheckpointStore store(root);
    return load_version(store, world, name);
  }

  test::TemporaryDirectory directory;
  std::string root = directory / "runs/gpt";
  SelfCommunicator world;
};

TEST_F(StoreTest, LayoutIsOneFolderAStepAndAPointer) {
  save(10, 1);
  save(20, 2);
  EXPECT_THAT(names_in(root), ElementsAre("LATEST", "step-00000010", "step-00000020"));
  EXPECT_THAT(names_in(root + "/step-00000020"), ElementsAre("manifest.json", "rank-00000.h5"));
  EXPECT_EQ(read_file(root + "/LATEST"), "step-00000020\n");
  write_file(root + "/step-00000020/.nfs0001", "");  // hidden files are the file system's
  EXPECT_EQ(load(), 2u);
  EXPECT_EQ(load("step-00000010"), 1u);
}

TEST_F(StoreTest, OtherToolsFindTheTensorsInTheFiles) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  const checkpoint::StateTensor tensors[] = {
      {"model/wte", {2, 3}, Box::whole({2, 3}), 0, TensorView(values.data(), {2, 3}), true}};
  CheckpointStore store(root);
  checkpoint::save(store, world, {1, {}, {}}, tensors);
  const h5::File file = h5::File::open(root + "/step-00000001/rank-00000.h5", Symlinks::refuse);
  const h5::Dataset dataset = file.dataset("/tensor/model/wte/0");
  EXPECT_EQ(dataset.shape(), (Shape{2, 3}));
  std::vector<float> read(6);
  dataset.read(TensorView(read.data(), {2, 3}));
  EXPECT_EQ(read, values);
}

TEST_F(StoreTest, IncompleteStepsDoNotCountAsKept) {
  for (std::uint64_t i = 1; i <= 3; ++i) save(static_cast<std::int64_t>(i), i);
  std::filesystem::resize_file(root + "/step-00000003/rank-00000.h5", 100);
  save(4, 4, 2);
  EXPECT_THAT(names_in(root), ElementsAre("LATEST", "step-00000002", "step-00000003", "step-00000004"));
  EXPECT_EQ(load("step-00000002"), 2u);
}

TEST_F(StoreTest, ALinkToAStepIsOneAndItsTargetStays) {
  save(10, 1);
  const std::string archive = directory / "archive";
  std::filesystem::create_directory(archive);
  std::filesystem::rename(root + "/step-00000010", archive + "/step-00000010");
  std::filesystem::create_directory_symlink(archive + "/step-00000010", root + "/step-00000010");
  EXPECT_EQ(load(), 1u);
  save(10, 2);
  EXPECT_EQ(load(), 2u);
  EXPECT_FALSE(std::filesystem::is_symlink(root + "/step-00000010"));
  EXPECT_THAT(names_in(root), ElementsAre("LATEST", "step-00000010"));
  EXPECT_THAT(names_in(archive + "/step-00000010"), ElementsAre("manifest.json", "rank-00000.h5"));
}

TEST_F(StoreTest, AStepThatCannotBeDeletedDoesNotEndLaterSaves) {
  save(10, 1);
  save(20, 2);
  std::filesystem::create_directories(root + "/step-00000010/.kept/open");
  for (const std::int64_t step : {30, 40, 50}) save(step, static_cast<std::uint64_t>(step), 1);
  EXPECT_EQ(load(), 50u);
  EXPECT_THAT(names_in(root), ElementsAre(testing::StartsWith(".trash-00000010-"), "LATEST", "step-00000050"));
}

/// Loses a bit of the disk after the step was written.
class ForgetfulStore final : public CheckpointStore {
 public:
  using CheckpointStore::CheckpointStore;
  void commit(const std::string& staging, const checkpoint::Manifest& manifest) override {
    const std::string path = root() + "/" + staging + "/" + manifest.files[0].name;
    std::string bytes = read_file(path);
    char& byte = bytes[static_cast<std::size_t>(manifest.pieces[0].offset_bytes)];
    byte = static_cast<char>(byte ^ 1);
    write_file(path, bytes);
    CheckpointStore::commit(staging, manifest);
  }
};

TEST_F(StoreTest, StepBeforeStaysUntilTheNewOneHasBeenReadBack) {
  save(10, 1);
  ForgetfulStore store(root);
  EXPECT_THAT([&] { save_version(store, world, 20, 2, 1); },
              ThrowsMessage<CollectiveError>(AllOf(HasSubstr("step 20"), HasSubstr("does not read back intact"))));
  EXPECT_EQ(load(), 1u);
}

TEST(MakeFolders, GoThroughALinkBeforeItsParent) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "disk/data");
  std::filesystem::create_symlink(directory / "disk/data", directory / "link");
  make_folders(directory / "link/../run/a");
  EXPECT_TRUE(std::filesystem::is_directory(directory / "disk/run/a"));
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

TEST(NumberIn, ReadsTheNumberBehindThePrefix) {
  EXPECT_EQ(number_in("step-00000012", "step-"), 12);
  EXPECT_EQ(number_in(".trash-00000007-ab12", ".trash-"), 7);
  for (const char* name : {"step-", "step--0", "step--1", "step-x", "step-1x", "other-1"}) {
    EXPECT_EQ(number_in(name, "step-"), -1) << name;
  }
}

TEST_F(StoreTest, PointerThatIsWrongIsOnlyAHint) {
  save(20, 2);
  save(10, 1);  // a later save of an earlier step
  for (const std::string& text : {std::string(), std::string("0"), std::string("../.."), std::string("step-00000099"),
                                  std::string("step-10"), std::string(10000, 'x'), std::string("\0\xff", 2)}) {
    write_file(root + "/LATEST", text);
    EXPECT_EQ(load(), 2u) << text;
  }
  std::filesystem::remove(root + "/LATEST");
  std::filesystem::create_symlink(root + "/LATEST", root + "/LATEST");
  EXPECT_EQ(load(), 2u);
  std::filesystem::remove(root + "/LATEST");
  write_file(root + "/LATEST", "step-00000010");
  testing::internal::CaptureStdout();  // the log of tests
  EXPECT_EQ(load(), 2u);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("LATEST names step-00000010"), HasSubstr("step-00000020 is newer and complete")));
  EXPECT_EQ(load("step-00000010"), 1u);
}

TEST_F(StoreTest, EveryFlippedBitIsFound) {
  save(10, 1);
  const std::string folder = root + "/step-00000010";
  test::Random random(7);
  CheckpointStore store(root);
  int flips = 0;
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    const std::string bytes = read_file(path);
    // Every byte of small files and of the beginning of others, then samples.
    for (std::size_t i = 0; i < bytes.size(); i += i < 2048 ? 1 : 1 + random() % 32) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << random() % 8);
      write_file(path, damaged);
      ASSERT_THAT([&] { open_checkpoint(store, world, "step-00000010"); },
                  ThrowsMessage<CheckpointError>(HasSubstr(name)))
          << "byte " << i;
      ++flips;
    }
    write_file(path, bytes);
  }
  EXPECT_EQ(load(), 1u);
  RecordProperty("flips", flips);
  EXPECT_GT(flips, 4000);
}

TEST_F(StoreTest, TruncatedFilesAndAddedBytesAreFound) {
  save(10, 1);
  const std::string folder = root + "/step-00000010";
  test::Random random(8);
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    const std::string bytes = read_file(path);
    for (int i = 0; i < 50; ++i) {
      write_file(path, bytes.substr(0, random() % bytes.size()));
      EXPECT_THROW(load("step-00000010"), CheckpointError);
    }
    write_file(path, bytes + '\0');
    EXPECT_THROW(load("step-00000010"), CheckpointError);
    std::filesystem::remove(path);
    EXPECT_THROW(load("step-00000010"), CheckpointError);
    EXPECT_THROW(load(), CheckpointError);
    write_file(path, bytes);
  }
  EXPECT_EQ(load(), 1u);
}

TEST_F(StoreTest, FilesOfAnotherStepAndLinksAreRefusedByName) {
  save(10, 1);
  save(20, 2);
  const std::string folder = root + "/step-00000020", shard = folder + "/rank-00000.h5", away = directory / "away.h5";
  const auto expect_refused = [&](const std::string& words) {
    EXPECT_THAT([&] { load("step-00000020"); }, ThrowsMessage<Error>(HasSubstr(words)));
    EXPECT_EQ(load(), 1u) << words;
  };
  std::filesystem::copy(shard, folder + "/rank-00001.h5");
  expect_refused("does not list the file rank-00001.h5");
  std::filesystem::remove(folder + "/rank-00001.h5");
  std::filesystem::rename(shard, away);
  std::filesystem::copy(root + "/step-00000010/rank-00000.h5", shard);
  expect_refused("rank-00000.h5");
  for (const std::string& target : {away, std::string("rank-00000.h5")}) {
    std::filesystem::remove(shard);
    std::filesystem::create_symlink(target, shard);
    EXPECT_THAT([&] { load("step-00000020"); }, ThrowsMessage<Error>(HasSubstr("rank-00000.h5")));
  }
  std::filesystem::remove_all(folder);
  std::filesystem::copy(root + "/step-00000010", folder);
  expect_refused("step-00000020/manifest.json is of step 10");
}

TEST_F(StoreTest, AStepOfALaterFormatIsNotReplacedByAnother) {
  save(10, 1);
  save(20, 2);
  CheckpointReader reader(root + "/step-00000020");
  checkpoint::Manifest manifest = reader.manifest();
  manifest.format_version = 2;
  CheckpointStore store(root);
  const std::string staging = store.begin(20, 0, "");
  std::filesystem::copy(root + "/step-00000020/rank-00000.h5", root + "/" + staging);
  store.commit(staging, manifest);
  EXPECT_THAT([&] { open_checkpoint(store, world); },
              ThrowsMessage<checkpoint::NewerFormatError>(AllOf(HasSubstr("version 2"), HasSubstr("up to 1"))));
  EXPECT_EQ(load("step-00000010"), 1u);
}

TEST_F(StoreTest, ASaveOfTheSameOriginKeepsCompleteFiles) {
  std::vector<float> values(100, 1.5f);
  int reads = 0;
  const auto datasets = [&](std::int64_t elements) {
    return std::vector<checkpoint::ShardDataset>{{"tensor/model/a/0", DType::fp32, Shape{elements}, [&, elements] {
                                                    ++reads;
                                                    return ConstTensorView(values.data(), {elements});
                                                  }}};
  };
  const auto save_two = [&](const std::string& origin, std::int64_t elements = 100) {
    CheckpointStore store(root);
    const std::string staging = store.begin(0, 0, origin);
    for (const char* name : {"rank-00000.h5", "rank-00001.h5"}) store.write_shard(staging, name, datasets(elements));
    return staging;
  };
  const std::string first = save_two("0123");
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(save_two("0123"), first);
  EXPECT_EQ(reads, 2) << "both files were kept";
  const std::string file = root + "/" + first + "/rank-00001.h5";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  save_two("0123");
  EXPECT_EQ(reads, 3) << "a file that was cut off is written again";
  {
    std::fstream damaged(root + "/" + first + "/rank-00000.h5", std::ios::binary | std::ios::in | std::ios::out);
    damaged.seekp(-1, std::ios::end);
    damaged.put('x');
  }
  write_file(root + "/" + first + "/" + shard_record_name("rank-00001.h5"), "{\"size_bytes\": []}");
  save_two("0123");
  EXPECT_EQ(reads, 5) << "and so is one that is damaged, or whose record is";
  save_two("0123", 50);
  EXPECT_EQ(reads, 7) << "records of other datasets do not count";
  const std::string other = save_two("4567");
  EXPECT_EQ(reads, 9);
  EXPECT_THAT(names_in(root), testing::Not(testing::Contains(first)));
  CheckpointStore store(root);
  const std::string staging = store.begin(0, 0, "4567");
  EXPECT_EQ(staging, other);
  const checkpoint::ShardFile kept = store.write_shard(staging, "rank-00000.h5", datasets(100));
  EXPECT_EQ(reads, 9);
  checkpoint::Manifest manifest;
  manifest.files = {kept.entry};
  store.commit(staging, manifest);
  EXPECT_THAT(names_in(root + "/step-00000000"),
              testing::ElementsAre("manifest.json", "rank-00000.h5", "rank-00001.h5"));
  EXPECT_THAT(names_in(root), testing::Not(testing::Contains(testing::StartsWith(".tmp"))));
}

TEST_F(StoreTest, StepBeingReplacedCountsUntilTheOtherHasItsName) {
  save(10, 1);
  save(20, 2);
  // As a kill between the two renames leaves it.
  std::filesystem::rename(root + "/step-00000020", root + "/.trash-00000020-12345678");
  std::filesystem::create_directory(root + "/.tmp-00000020-12345678");
  write_file(root + "/.tmp-00000020-12345678/rank-00000.h5", "half");
  EXPECT_EQ(load(), 2u);
  save(30, 3);  // restores its name and removes the rest
  EXPECT_THAT(names_in(root), ElementsAre("LATEST", "step-00000010", "step-00000020", "step-00000030"));
  EXPECT_EQ(load("step-00000020"), 2u);
  EXPECT_EQ(load(), 3u);
}

TEST_F(StoreTest, AcceptsThePathOfARootOrOfAStep) {
  save(10, 1);
  const std::string real_root = std::filesystem::canonical(root).string();
  EXPECT_EQ(find_checkpoint(root).root, real_root);
  EXPECT_EQ(find_checkpoint(root + "/").step, "");
  EXPECT_EQ(find_checkpoint(root + "/step-00000010/").root, real_root);
  EXPECT_EQ(find_checkpoint(root + "/step-00000010").step, "step-00000010");
  std::filesystem::rename(root + "/step-00000010", root + "/best");
  EXPECT_EQ(find_checkpoint(root + "/best").step, "best");
  EXPECT_EQ(load("best"), 1u);
  write_file(directory / "file", "");
  EXPECT_THROW(find_checkpoint(directory / "file"), CheckpointError);
}

TEST_F(StoreTest, SavesNoStepsInAStep) {
  save(10, 1);
  CheckpointStore store(root + "/step-00000010/");
  EXPECT_THAT([&] { store.reserve(); }, ThrowsMessage<ConfigError>(HasSubstr("step-00000010 is one checkpoint")));
  EXPECT_THROW(store.claim(1), ConfigError);
  EXPECT_THAT(names_in(root + "/step-00000010"), ElementsAre("manifest.json", "rank-00000.h5"));
}

TEST_F(StoreTest, TooLittleSpaceIsReportedInAdvance) {
  CheckpointStore store(root);
  EXPECT_THAT([&] { store.claim(std::int64_t{1} << 60); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("1152921504606846976 bytes"), HasSubstr("are free"))));
  EXPECT_THROW(store.begin(1, std::int64_t{1} << 60, ""), IoError);
}

}  // namespace
}  // namespace trireme::io
