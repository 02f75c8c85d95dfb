#include "src/app/options/nearest_name.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::app {
namespace {

const std::vector<std::string> commands = {"corpus build", "corpus verify", "corpus", "train", "eval", "plan"};

TEST(NearestName, FindsTheCommandThatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"trian", "train"}, {"corups", "corpus"}, {"corpus-build", "corpus build"}, {"EVAL", "eval"}, {"pla", "plan"}};
  for (const auto& [typed, meant] : cases)
    EXPECT_EQ(suggestion(typed, commands, "--"), "; did you mean --" + meant + "?");
}

TEST(NearestName, SuggestsNothingFarAway) {
  for (const std::string typed : {"x", "ls", "benchmark"}) EXPECT_EQ(suggestion(typed, commands), "");
  EXPECT_EQ(suggestion(std::string(std::size_t{1} << 20, 't'), commands), "");
}

}  // namespace
}  // namespace trireme::app
