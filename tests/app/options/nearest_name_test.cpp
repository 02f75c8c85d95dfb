#include "src/app/options/nearest_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "src/base/error.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<std::string> commands = {"corpus build", "corpus verify", "corpus", "train", "eval", "plan"};

TEST(NearestName, FindsTheCommandThatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"trian", "train"}, {"corups", "corpus"}, {"corpus-build", "corpus build"}, {"EVAL", "eval"}, {"pla", "plan"}};
  for (const auto& [typed, meant] : cases) EXPECT_EQ(nearest_name(typed, commands), meant) << typed;
}

TEST(NearestName, SuggestsNothingFarAway) {
  for (const std::string typed : {"x", "ls", "benchmark"}) EXPECT_EQ(suggestion(typed, commands), "");
  EXPECT_EQ(suggestion(std::string(std::size_t{1} << 20, 't'), commands), "");
}

TEST(NearestName, NamesTheWholeCommandOfASubcommand) {
  const std::vector<std::string> words = {"build", "verify"};
  EXPECT_THAT(
      [&] { refuse_subcommand("corpus", "biuld", words); },
      ThrowsMessage<ConfigError>(HasSubstr("no command trireme corpus biuld; did you mean trireme corpus build?")));
  EXPECT_THAT([&] { refuse_subcommand("corpus", "", words); },
              ThrowsMessage<ConfigError>(HasSubstr("one of build, verify must follow")));
}

}  // namespace
}  // namespace trireme::app
