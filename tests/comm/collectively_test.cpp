// Functions built on communicators, on every number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "src/comm/communicator.hpp"
#include "tests/fakes/recording_communicator.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme {
namespace {

using test::world;
using testing::HasSubstr;

TEST(AllGatherText, GivesEveryText) {
  const std::string mine(static_cast<std::size_t>(world().rank() * 1000), static_cast<char>('a' + world().rank()));
  const std::vector<std::string> texts = all_gather_text(world(), mine);
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(world().size()));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    EXPECT_EQ(texts[rank], std::string(rank * 1000, static_cast<char>('a' + rank)));
  }
}

TEST(GatherText, GivesEveryTextToTheRootAlone) {
  const std::string mine(static_cast<std::size_t>(world().rank() * 1000), static_cast<char>('a' + world().rank()));
  const std::vector<std::string> all = all_gather_text(world(), mine);
  for (int root = 0; root < world().size(); ++root) {
    EXPECT_EQ(gather_text(world(), mine, root), world().rank() == root ? all : std::vector<std::string>());
  }
}

TEST(GatherDistinctText, SendsEachTextOnceAndOnlyToTheRoot) {
  const auto text_of = [](int rank) { return rank == 2 ? "" : std::string(rank % 2 == 0 ? 1000 : 2000, 'a'); };
  test::RecordingCommunicator counted(world());
  const std::vector<std::string> texts = gather_distinct_text(counted, text_of(world().rank()), 0);
  std::vector<std::string> wanted;
  if (world().rank() == 0) wanted.push_back(text_of(0));
  if (world().rank() == 0 && world().size() > 1) wanted.push_back(text_of(1));
  EXPECT_EQ(texts, wanted);
  EXPECT_EQ(counted.bytes_sent, world().rank() == 1 ? text_of(1).size() : 0);
}

TEST(BroadcastText, ReturnsTheTextOfTheRoot) {
  for (int root = 0; root < world().size(); ++root) {
    EXPECT_EQ(broadcast_text(world(), "from " + std::to_string(world().rank()), root), "from " + std::to_string(root));
  }
  EXPECT_EQ(broadcast_text(world(), "", 0), "");
}

/// Expects all ranks to throw a CollectiveError with this exit code and a message that matches.
void expect_collective_error(const std::function<void()>& function, ExitCode code,
                             const testing::Matcher<const std::string&>& message) {
  try {
    function();
    FAIL() << "nothing was thrown";
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.exit_code(), code);
    EXPECT_THAT(std::string(error.what()), message);
  }
}

TEST(Collectively, ReturnsIfAllSucceed) {
  int calls = 0;
  collectively(world(), [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(Collectively, AllRanksThrowTheErrorOfOne) {
  if (world().size() == 1) GTEST_SKIP() << "in a group of one the error passes as it is";
  for (int culprit = 0; culprit < world().size(); ++culprit) {
    const auto fail = [&] {
      if (world().rank() == culprit) throw DataError("the file is torn at {}", 7);
    };
    const std::string who = culprit == 0 ? "" : "rank " + std::to_string(culprit) + ": ";
    expect_collective_error([&] { collectively(world(), fail); }, ExitCode::data, who + "the file is torn at 7");
  }
}

TEST(Collectively, ReportsTheFirstOfSeveralErrors) {
  if (world().size() == 1) GTEST_SKIP() << "needs two ranks";
  const auto fail = [] {
    if (world().rank() > 0) throw IoError("disk {} is full", world().rank());
  };
  expect_collective_error([&] { collectively(world(), fail); }, ExitCode::io, "rank 1: disk 1 is full");
}

TEST(Collectively, ForeignExceptionsBecomeErrorsOfTheEnvironment) {
  if (world().size() == 1) GTEST_SKIP() << "needs two ranks";
  expect_collective_error([] { collectively(world(), [] { throw std::runtime_error("no memory left"); }); },
                          ExitCode::environment, "no memory left");
}

TEST(CheckSameEverywhere, NamesRanksAndTheFirstDifferentLine) {
  const int size = world().size();
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  const bool differs = world().rank() == 1 || world().rank() == size - 1;
  const std::string ranks =
      size == 2 ? "on rank(s) 1 of 2" : "on rank(s) 1, " + std::to_string(size - 1) + " of " + std::to_string(size);
  expect_collective_error(
      [&] { check_same_everywhere(world(), "the configuration", differs ? "seed 1\nlr 3\n" : "seed 1\nlr 2\n"); },
      ExitCode::usage,
      testing::AllOf(HasSubstr("the configuration differs between ranks"), HasSubstr(ranks),
                     HasSubstr("line 2: \"lr 2\" against \"lr 3\"")));
}

TEST(CheckSameEverywhere, SendsNoTextWhereAllAgree) {
  test::RecordingCommunicator counted(world());
  check_same_everywhere(counted, "the configuration", "seed 1");
  EXPECT_TRUE(counted.exchanges.empty());
}

TEST(CheckSameEverywhere, FindsAMissingEnd) {
  if (world().size() == 1) GTEST_SKIP() << "needs two ranks";
  expect_collective_error([] { check_same_everywhere(world(), "the library", world().rank() == 0 ? "a\nb" : "a"); },
                          ExitCode::usage, HasSubstr("line 2: \"b\" against \"\""));
}

}  // namespace
}  // namespace trireme
