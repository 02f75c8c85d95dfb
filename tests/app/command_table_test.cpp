#include "src/app/command_table.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"

namespace trireme::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(CommandTable, FindsTheLongestPath) {
  const Call build = find_command({"corpus", "build", "--help"});
  ASSERT_NE(build.command, nullptr);
  EXPECT_EQ(build.command->path, "corpus build");
  EXPECT_EQ(build.command->ranks, Ranks::many);
  EXPECT_THAT(build.arguments, ElementsAre("--help"));
  const Call parent = find_command({"corpus", "bild"});
  ASSERT_NE(parent.command, nullptr);
  EXPECT_EQ(parent.command->path, "corpus");
  EXPECT_THAT(parent.arguments, ElementsAre("bild"));
  EXPECT_EQ(find_command({}).command, nullptr);
  EXPECT_EQ(find_command({"trian"}).command, nullptr);
}

TEST(CommandTable, OnlyTrainingIsAskedToStop) {
  EXPECT_EQ(find_command({"train"}).command->on_stop_signal, OnStopSignal::ask);
  EXPECT_EQ(find_command({"corpus", "build"}).command->on_stop_signal, OnStopSignal::end);
}

TEST(CommandTable, AGroupListsItsCommandsAndSuggestsTheNearest) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_command(find_command({"checkpoint", "--help"})), 0);
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("Usage: trireme checkpoint inspect|verify|reshard|export|import [OPTION]... [DIR]\n"));
  EXPECT_THAT(help, HasSubstr("\n  verify   read entire checkpoints"));
  const auto expect_refused = [](const std::vector<std::string>& words, const char* message) {
    EXPECT_THAT([&] { run_command(find_command(words)); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  expect_refused({"checkpoint", "verfy"},
                 "no command trireme checkpoint verfy; did you mean trireme checkpoint verify?");
  expect_refused({"checkpoint"}, "one of inspect, verify, reshard, export, import must follow");
}

TEST(CommandTable, TheHelpOfTheProgramListsGroupsAndWhatRunsOnRanks) {
  const std::string help = program_help();
  EXPECT_THAT(help, HasSubstr("\n  corpus build       tokenize text"));
  EXPECT_THAT(help, HasSubstr("\n  tokenizer          train a tokenizer"));
  EXPECT_THAT(help, Not(HasSubstr("corpus merge ")));
  EXPECT_EQ(unknown_command_text("trian"), "there is no command 'trian'; did you mean train?");
}

}  // namespace
}  // namespace trireme::app
