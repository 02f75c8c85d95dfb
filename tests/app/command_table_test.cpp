#include "src/app/command_table.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"

namespace trireme::app {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(CommandTable, OnlyTrainingHandlesStopSignals) {
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

}  // namespace
}  // namespace trireme::app
