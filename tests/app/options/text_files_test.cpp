#include "src/app/options/text_files.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "src/base/error.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CheckOutputs, RefusesFilesThatAreReadOrWrittenTwice) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "data");
  std::filesystem::create_directory_symlink(directory / "data", directory / "link");
  const auto check = [&](std::vector<std::string> outputs, std::vector<std::string> inputs) {
    for (std::vector<std::string>* names : {&outputs, &inputs}) {
      for (std::string& name : *names) name = name.empty() ? "" : directory / name;
    }
    check_outputs(outputs, inputs);
  };
  const auto expect_refused = [&](const std::vector<std::string>& outputs, const std::vector<std::string>& inputs,
                                  const std::string& message) {
    EXPECT_THAT([&] { check(outputs, inputs); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  expect_refused({"", "run/../new.h5"}, {"", "new.h5"}, "new.h5 is both input and output: name another output");
  expect_refused({"link/a.jsonl"}, {"data/a.jsonl"}, "link/a.jsonl is both input and output");
  expect_refused({"run/step-00000040/manifest.json"}, {}, "manifest.json belongs to a checkpoint: name another output");
  expect_refused({"run/step-00000040/rank-00000.h5"}, {}, "rank-00000.h5 belongs to a checkpoint");
  expect_refused({"a", "./a"}, {}, "a would be written twice: name a file for each output");
  check({"data/b.jsonl", "run/metrics.jsonl", "run/step-00000040/notes.txt", "manifest.json"}, {"data", ""});
}

}  // namespace
}  // namespace trireme::app
