#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/json/task_json.hpp"
#include "src/data/tasks/glue.hpp"
#include "tests/support/gpt2_files.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// Examples that Megatron-LM 23.06 made from task files.
class TaskGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TRIREME_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of outside test data";
    folder_ = folder;
    std::ifstream file(folder_ + "/../oracle/tasks.json");
    if (!file) GTEST_SKIP() << "there is no oracle/tasks.json beside the folder that TRIREME_TEST_DATA names";
    golden_ = json::parse(file);
    std::ifstream lines(folder_ + "/bert/bert-base-uncased-vocab.txt");
    WordPieceVocabulary vocabulary;
    for (std::string line; std::getline(lines, line);) vocabulary.tokens.push_back(line);
    vocabulary.max_word_characters = 200;  // Megatron-LM's limit
    tokenizer_ = make_wordpiece_tokenizer(std::move(vocabulary));
  }

  Ids encode(const std::string& text) const { return test::encode(*tokenizer_, text); }

  static Ids padded(Ids values, std::size_t size) {
    values.resize(size);  // [PAD] is 0
    return values;
  }

  static void expect_equal(const PackedPair& made, const json& ids, const json& types, const json& paddings) {
    EXPECT_EQ(padded(made.tokens, ids.size()), ids.get<Ids>());
    EXPECT_EQ(padded(made.token_types, types.size()), types.get<Ids>());
    EXPECT_EQ(padded(Ids(made.tokens.size(), 1), paddings.size()), paddings.get<Ids>());
  }

  static constexpr PairTokens tokens_{101, 102, 0};
  std::string folder_;
  json golden_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TaskGolden, CleanedTextMatchesTheReference) {
  const json& cases = golden_.at("clean_text");
  for (const json& each : cases) {
    EXPECT_EQ(clean_text(each.at(0).get<std::string>()), each.at(1).get<std::string>()) << each;
  }
  EXPECT_EQ(cases.size(), 17u);
}

TEST_F(TaskGolden, PackedPairsMatchTheReference) {
  const json& cases = golden_.at("build_tokens_types_paddings_from_ids");
  const auto counted = [](const json& count, std::int32_t first) {
    Ids ids(count.is_null() ? 0 : count.get<std::size_t>());
    for (std::int32_t& id : ids) id = first++;
    return ids;
  };
  for (const json& each : cases) {
    SCOPED_TRACE(each);
    const Ids a = counted(each.at("a"), 200), b = counted(each.at("b"), 300);
    const bool has_b = !each.at("b").is_null();
    expect_equal(pack_pair(a, has_b ? std::optional<std::span<const std::int32_t>>(b) : std::nullopt,
                           each.at("max_seq_length"), tokens_),
                 each.at("ids"), each.at("types"), each.at("paddings"));
  }
  EXPECT_EQ(cases.size(), 20u);
}

TEST_F(TaskGolden, LongWordsMatchTheReference) {
  const json& cases = golden_.at("wordpiece_long_words");
  for (const json& each : cases) {
    EXPECT_EQ(encode(each.at(1).get<std::string>()), each.at(2).get<Ids>()) << each.at(0);
  }
  EXPECT_EQ(cases.size(), 9u);
}

TEST_F(TaskGolden, QuestionsOfRaceMatchTheReference) {
  const json& race = golden_.at("race");
  TaskFile file{"race.txt", ""};
  std::ifstream dev(folder_ + "/mrc/race_format_synthetic.dev.jsonl");
  std::string line;
  for (int i = 0; i < 8 && std::getline(dev, line); ++i) file.text += line + '\n';
  for (const json& own : race.at("own_lines")) file.text += own.get<std::string>() + '\n';
  for (const json& run : race.at("runs")) {
    RaceExamples examples;
    BadLines bad;
    add_race(file, io::parse_race_article, *tokenizer_, run.at("max_qa_length"), bad, examples);
    const json& expected = run.at("questions");
    ASSERT_EQ(examples.questions.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(examples.questions[i].label, expected[i].at("label"));
      for (std::size_t choice = 0; choice < 4; ++choice) {
        expect_equal(examples.packed(examples.questions[i], choice, run.at("max_seq_length"), tokens_),
                     expected[i].at("ids")[choice], expected[i].at("types")[choice],
                     expected[i].at("paddings")[choice]);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(race.at("runs").size(), 2u);
}

TEST_F(TaskGolden, ExamplesOfGlueMatchTheReference) {
  const json& glue = golden_.at("glue");
  for (const json& expected : glue.at("files")) {
    const auto name = expected.at("file").get<std::string>();
    SCOPED_TRACE(name);
    const TaskFile file{name, test::read_file(folder_ + "/glue_format/" + name)};
    const GlueTask& task = *find_glue_task(name.starts_with("MNLI") ? "MNLI" : "QQP");
    BadLines bad, skipping(true);
    if (expected.contains("error")) {
      const std::string line = expected.at("line").dump();
      EXPECT_THAT([&] { read_glue(task, file, bad); },
                  testing::ThrowsMessage<DataError>(testing::StartsWith(name + ":" + line + ": ")));
      if (line != "1") {
        read_glue(task, file, skipping);
        EXPECT_GE(skipping.count(), 1);
      }
      continue;
    }
    if (name.find("no_header") != name.npos) {  // the reference loses the first example
      EXPECT_THAT([&] { read_glue(task, file, bad); },
                  testing::ThrowsMessage<DataError>(testing::StartsWith(name + ":1: ")));
      continue;
    }
    const json& skipped = expected.at("skipped");
    if (!skipped.empty()) {
      EXPECT_THROW(read_glue(task, file, bad), DataError);
    }
    const GlueExamples examples = read_glue(task, file, skipping);
    EXPECT_EQ(examples.is_test, expected.at("is_test"));
    ASSERT_EQ(examples.pairs.size(), expected.at("samples").size());
    for (std::size_t i = 0; i < examples.pairs.size(); ++i) {
      const TextPair& pair = examples.pairs[i];
      const json& sample = expected.at("samples")[i];
      EXPECT_EQ(pair.id, sample.at("uid"));
      EXPECT_EQ(pair.label, sample.at("label"));
      const Ids a = encode(pair.a), b = encode(pair.b);
      expect_equal(pack_pair(a, b, glue.at("max_seq_length"), tokens_), sample.at("ids"), sample.at("types"),
                   sample.at("paddings"));
      if (i < 4) {
        EXPECT_EQ(pair.a, expected.at("text_a")[i].get<std::string>());
        EXPECT_EQ(pair.b, expected.at("text_b")[i].get<std::string>());
      }
      if (HasFailure()) return;
    }
    ASSERT_EQ(static_cast<std::size_t>(skipping.count()), skipped.size());
    for (std::size_t i = 0; i < skipped.size(); ++i) {
      const char* reason = skipped[i] == "zero length a"   ? "first text is empty"
                           : skipped[i] == "zero length b" ? "second text is empty"
                                                           : "columns instead of 6";
      EXPECT_THAT(skipping.messages()[i], testing::HasSubstr(reason));
    }
  }
  EXPECT_EQ(glue.at("files").size(), 26u);
}

}  // namespace
}  // namespace trireme::data
