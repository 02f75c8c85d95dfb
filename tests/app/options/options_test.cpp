#include "src/app/options/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/app/words.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

enum class Schedule { gpipe, one_f_one_b };

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    options_.section("Parallelism");
    options_.add("tensor-model-parallel-size,tp", &tp_, "N", "Ranks that share each layer.", at_least(1));
    options_.add_choice("schedule", &schedule_, {{"gpipe", Schedule::gpipe}, {"1f1b", Schedule::one_f_one_b}},
                        "Order of the steps.");
    options_.add_flag("sequence-parallel", &sequence_parallel_, "Split activations.");
    options_.section("Training");
    options_.add("lr", &lr_, "X", "Learning rate.", between(0, 10));
    options_.add("seed", &seed_, "N", "Seed.");
    options_.add("train-samples", &samples_, "N", "Samples.");
    options_.add("consumed", &consumed_, "N", "Unsigned.");
    options_.add("prompt", &prompt_, "TEXT", "Text.");
    options_.add("data-path", &data_, "FILE", "Corpora.");
  }

  bool parse(const Words& words) { return options_.parse(words); }
  void expect_problem(const Words& words, const std::string& expected) {
    EXPECT_THAT([&] { parse(words); }, ThrowsMessage<ConfigError>(HasSubstr(expected)));
  }
  std::string file_with(const std::string& text) {
    std::ofstream(directory_ / "options.ini") << text;
    return directory_ / "options.ini";
  }

  test::TemporaryDirectory directory_;
  Options options_{"trireme train", "Trains a model."};
  int tp_ = 1;
  Schedule schedule_ = Schedule::one_f_one_b;
  bool sequence_parallel_ = false;
  double lr_ = 0.1;
  std::int64_t seed_ = 1234;
  std::optional<std::int64_t> samples_;
  std::uint64_t consumed_ = 0;
  std::string prompt_;
  std::vector<std::string> data_;
};

TEST_F(OptionsTest, SetsVariablesOfEveryType) {
  EXPECT_TRUE(
      parse({"--tp", "4", "--schedule=gpipe", "--sequence-parallel", "--lr", "1.5e-4", "--seed", "-7",
             "--train-samples", "9000000000", "--prompt", "a b", "--data-path", "0.3", "a.h5", "0.7", "b c.h5"}));
  EXPECT_EQ(tp_, 4);
  EXPECT_EQ(schedule_, Schedule::gpipe);
  EXPECT_TRUE(sequence_parallel_);
  EXPECT_EQ(lr_, 1.5e-4);
  EXPECT_EQ(seed_, -7);
  EXPECT_EQ(samples_, 9000000000);
  EXPECT_EQ(prompt_, "a b");
  EXPECT_THAT(data_, ElementsAre("0.3", "a.h5", "0.7", "b c.h5"));
  EXPECT_TRUE(options_.given("tensor-model-parallel-size"));
  EXPECT_FALSE(options_.given("consumed"));
}

TEST_F(OptionsTest, AcceptsUnusualText) {
  EXPECT_TRUE(parse({"--prompt", ""}));
  EXPECT_EQ(prompt_, "");
  EXPECT_TRUE(parse("--prompt=--seed --data-path -"));
  EXPECT_EQ(prompt_, "--seed");
  EXPECT_THAT(data_, ElementsAre("-"));
  EXPECT_TRUE(parse({"--prompt", "größe = x # no comment"}));
  EXPECT_EQ(prompt_, "größe = x # no comment");
}

TEST_F(OptionsTest, AValueMayBeLeftOut) {
  std::string chat = "default";
  options_.add_optional("chat", &chat, "[FILE]", "Conversation.");
  const auto chat_of = [&](const Words& words) {
    parse(words);
    return chat;
  };
  EXPECT_EQ(chat_of("--lr 1"), "default");
  EXPECT_FALSE(options_.given("chat"));
  EXPECT_EQ(chat_of("--chat"), "");
  EXPECT_TRUE(options_.given("chat"));
  EXPECT_EQ(chat_of("--chat a.json --lr 1"), "a.json");
  EXPECT_EQ(chat_of("--chat=b.json"), "b.json");
  EXPECT_EQ(chat_of("--chat --lr 1"), "");
  EXPECT_EQ(chat_of("--lr 1 --chat -"), "-");
  EXPECT_TRUE(options_.takes_path("chat"));
  expect_problem("--chat a b", "unexpected argument 'b'");
  expect_problem("--chat -lr 1", "no option -lr");
}

TEST_F(OptionsTest, NamesTheNearestOptionWhereOneIsUnknown) {
  expect_problem("--tensor-model-paralel-size 2", "did you mean --tensor-model-parallel-size?");
  expect_problem("--sequence_parallel", "did you mean --sequence-parallel?");
  expect_problem("--tps 2", "did you mean --tp?");
  expect_problem("--tensor-model 2", "no option --tensor-model; did you mean --tensor-model-parallel-size?");
  EXPECT_THAT([&] { parse("--something-else 2"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("no option --something-else"), Not(HasSubstr("mean")))));
}

TEST_F(OptionsTest, RefusesValuesOfAnotherTypeNamingOptionAndValue) {
  expect_problem("--tp two", "--tp two is not a whole number");
  expect_problem("--tp 1e9x", "--tp 1e9x is not");
  expect_problem("--tp 3000000000", "--tp 3000000000 does not fit");
  expect_problem("--seed 9223372036854775808", "--seed 9223372036854775808 does not fit");
  expect_problem("--consumed -1", "--consumed -1 is not");
  expect_problem("--tp 0", "--tp 0 must be at least 1");
  expect_problem("--lr 11", "--lr 11 must be between 0 and 10");
  expect_problem("--lr nan", "--lr nan is not a number");
  expect_problem("--lr inf", "--lr inf is not a number");
  expect_problem("--lr 0,5", "--lr 0,5 is not a number");
  expect_problem("--schedule zigzag", "--schedule zigzag is not one of gpipe, 1f1b");
  expect_problem("--schedule gpip", "is not one of gpipe, 1f1b; did you mean gpipe?");
}

TEST_F(OptionsTest, RefusesMissingAndUnexpectedValues) {
  expect_problem("--tp", "tp");
  expect_problem("--tp --seed 1", "has no value: --seed follows it");
  expect_problem("--prompt --seed=1", "--prompt has no value: --seed=1 follows it");
  expect_problem({"--data-path", ""}, "--data-path has an empty name");
  expect_problem({"--config", ""}, "--config has an empty name");
  expect_problem("--sequence-parallel=yes", "sequence-parallel");
  expect_problem({"stray"}, "unexpected argument 'stray'");
  expect_problem({"-x"}, "there is no option -x");
}

TEST_F(OptionsTest, SuggestsTheOptionForASingleHyphen) {
  expect_problem({"-lr", "1"}, "there is no option -lr; did you mean --lr?\nsee");
  expect_problem("--data-path a.h5 -lr 1", "there is no option -lr; did you mean --lr?\nsee");
  EXPECT_TRUE(parse("--prompt -lr --seed -1"));
  EXPECT_EQ(prompt_, "-lr");
}

TEST_F(OptionsTest, NamesAnUnknownOptionBeforeWhatFollowsIt) {
  expect_problem("--lrr 1 --seed 2", "there is no option --lrr; did you mean --lr?\nsee");
  expect_problem("--sede 1 stray --lr 1 word", "did you mean --seed?\nunexpected argument 'word'");
}

TEST_F(OptionsTest, RefusesNamesOfFilesThatAreTooLongInOneLine) {
  for (const std::string& path : {std::string(5000, 'a'), "folder/" + std::string(256, 'b') + "/c"}) {
    for (const std::string option : {"--data-path", "--config"}) {
      try {
        parse({option, path});
        ADD_FAILURE() << option << " takes " << path;
      } catch (const IoError& error) {
        const std::string message = error.what();
        EXPECT_THAT(message, AllOf(HasSubstr(option), HasSubstr("the name is too long"), Not(HasSubstr("\n"))));
        EXPECT_LT(message.size(), 250u);
      }
    }
  }
  EXPECT_TRUE(parse({"--data-path", std::string(255, 'a')}));
}

TEST_F(OptionsTest, RefusesContradictionsBetweenTheNamesOfAnOption) {
  expect_problem("--tp 2 --tensor-model-parallel-size 4",
                 "--tp 2 and --tensor-model-parallel-size 4 contradict each other");
  expect_problem("--seed 1 --seed 2", "contradict");
  EXPECT_TRUE(parse("--tp 2 --tensor-model-parallel-size 2 --seed 1 --seed 1"));
  EXPECT_TRUE(parse("--data-path a --data-path b"));
  EXPECT_THAT(data_, ElementsAre("a", "b"));
}

TEST_F(OptionsTest, TheCommandLineOverridesAFile) {
  const std::string path = file_with(
      "# a run\n\ntp = 2\nlr = 0.5  # a comment\nsequence-parallel = true\ndata-path = a b.h5\ndata-path = c.h5\n");
  EXPECT_TRUE(parse({"--config", path, "--tensor-model-parallel-size", "8"}));
  EXPECT_EQ(tp_, 8);
  EXPECT_EQ(lr_, 0.5);
  EXPECT_TRUE(sequence_parallel_);
  EXPECT_THAT(data_, ElementsAre("a b.h5", "c.h5"));
  EXPECT_TRUE(options_.given("lr"));
}

TEST_F(OptionsTest, RefusesFilesThatAreWrong) {
  expect_problem({"--config", file_with("tq = 2\n")}, "did you mean --tp?");
  expect_problem({"--config", file_with("tp = 2\ntp = 3\n")}, "contradict");
  expect_problem({"--config", file_with("just words\n")}, "options.ini");
  expect_problem({"--config", file_with("sequence-parallel = yes\n")}, "neither true nor false");
  expect_problem({"--config", file_with("lr =\n")}, "is not a number");
  EXPECT_THROW(parse({"--config", directory_ / "absent.ini"}), IoError);
  expect_problem({"--config", file_with("config = other.ini\n")}, "a file of options cannot include another");
}

TEST_F(OptionsTest, ReadsFilesOfOptionsThatAreTextInUtf8Only) {
  EXPECT_TRUE(parse({"--config", file_with("\xEF\xBB\xBFtp = 3\n")}));
  EXPECT_EQ(tp_, 3);
  expect_problem({"--config", file_with("\xFF\xFEt")}, "is text in UTF-16: save it as UTF-8");
  expect_problem({"--config", file_with(std::string("\x89HDF\0\0", 6))}, "contains zero bytes, so it is not text");
  expect_problem({"--config", file_with(std::string(2 << 20, '#'))}, "the limit is 1048576");
  expect_problem({"--config", file_with("# tp = 1\ntp = 3 # three\nname = run#2\n")}, ":3: '#' begins a comment");
  expect_problem({"--config", directory_ / "."}, "is a directory, not a regular file");
  const std::string pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_problem({"--config", pipe}, "is a pipe, not a regular file");
}

TEST_F(OptionsTest, RequiresMandatoryOptions) {
  options_.require({"data-path"});
  std::string file;
  options_.add_argument("FILE", &file, "The file.");
  expect_problem("--tp 1", "--data-path must be given");
  expect_problem("--data-path x", "FILE is missing");
  EXPECT_TRUE(parse({"f.h5", "--data-path", "x"}));
  EXPECT_EQ(file, "f.h5");
}

TEST_F(OptionsTest, PrintsHelpWithAliasesPlaceholdersAndDefaults) {
  options_.require({"lr"});
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(parse("--tp nonsense --help"));
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* expected :
       {"Usage: trireme train", "Parallelism:", "--tensor-model-parallel-size, --tp N", "gpipe|1f1b", "[1f1b]",
        "[1234]", "Learning rate. [required]", "--data-path FILE...", "--config FILE", "--help"}) {
    EXPECT_THAT(text, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace trireme::app
