#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_store.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/app/commands/command_test.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace trireme::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

class CheckpointCommand : public CommandTest {
 protected:
  CheckpointCommand() : CommandTest("checkpoint") {}
  void SetUp() override {
    SelfCommunicator world;
    io::CheckpointStore store(root);
    test::save_version(store, world, 10, 1);
    test::save_version(store, world, 20, 2);
  }
  /// Runs the command and returns its output.
  std::string output_of(const std::vector<std::string>& words) {
    EXPECT_EQ(run(words), 0) << message_;
    return output_;
  }
  /// Runs the command, expects an error with this message, and returns the output before it.
  std::string run_to_error(const std::vector<std::string>& words, const testing::Matcher<std::string>& message) {
    EXPECT_EQ(run(words), 3);
    EXPECT_THAT(message_, message);
    return output_;
  }
  /// Gives the latest step this manifest, with a digest that is right.
  void replace_latest(const checkpoint::Manifest& manifest) {
    io::CheckpointStore store(root);
    const std::string staging = store.begin(20, 0, "");
    std::filesystem::copy(latest + "/rank-00000.h5", root + "/" + staging);
    store.commit(staging, manifest);
  }

  std::string root = directory_ / "run";
  std::string latest = root + "/step-00000020";
};

TEST_F(CheckpointCommand, InspectPrintsTheContent) {
  const std::string text = output_of({"inspect", root});
  EXPECT_THAT(text, AllOf(HasSubstr("step-00000020  latest"), HasSubstr("step-00000010\n"), HasSubstr("step        20"),
                          HasSubstr("version"), HasSubstr("rank-00000.h5"), HasSubstr("[3, 6, 2, 5]"),
                          HasSubstr("tokenizer"), HasSubstr("4 tensors, 398 elements")));
  EXPECT_THAT(output_of({"inspect", root + "/step-00000010"}),
              AllOf(HasSubstr("step        10"), Not(HasSubstr("step-00000020"))));
}

TEST_F(CheckpointCommand, VerifyNamesFileAndTensorThatAreDamaged) {
  const checkpoint::Piece piece = io::CheckpointReader(latest).manifest().pieces[1];
  {
    std::fstream file(latest + "/rank-00000.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(piece.offset_bytes);
    const int byte = file.get();
    file.seekp(piece.offset_bytes);
    file.put(static_cast<char>(byte ^ 1));
  }
  EXPECT_THAT(run_to_error({"verify", root}, AllOf(HasSubstr("rank-00000.h5"), HasSubstr(piece.tensor))),
              AllOf(HasSubstr("step-00000010 is complete"), Not(HasSubstr("step-00000020 is complete"))));
  std::filesystem::remove(latest + "/manifest.json");
  run_to_error({"verify", latest}, HasSubstr("manifest.json is missing"));
}

TEST_F(CheckpointCommand, VerifyChecksTheManifestAgainstTheHdf5File) {
  checkpoint::Manifest manifest = io::CheckpointReader(latest).manifest();
  std::swap(manifest.pieces[0].dataset, manifest.pieces[1].dataset);
  replace_latest(manifest);
  run_to_error({"verify", latest}, HasSubstr("the manifest says"));
}

TEST_F(CheckpointCommand, VerifyAndLoadRefuseAnAbsurdStateByName) {
  checkpoint::Manifest manifest = io::CheckpointReader(latest).manifest();
  manifest.attributes.put("state.iteration", "abc");
  replace_latest(manifest);
  const auto message = AllOf(HasSubstr(latest), HasSubstr("state.iteration is 'abc'"));
  run_to_error({"verify", latest}, message);
  SelfCommunicator world;
  EXPECT_THAT([&] { open_checkpoint(world, root); }, ThrowsMessage<CheckpointError>(message));
}

TEST_F(CheckpointCommand, VerifyNamesFilesAndStepsThatDoNotBelongThere) {
  std::filesystem::copy(latest + "/rank-00000.h5", latest + "/rank-00007.h5");
  std::filesystem::rename(root + "/step-00000010", root + "/step-00000011");
  run_to_error({"verify", root}, AllOf(HasSubstr("does not list the file rank-00007.h5"),
                                       HasSubstr("step-00000011/manifest.json is of step 10")));
}

}  // namespace
}  // namespace trireme::app
