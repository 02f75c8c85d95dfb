// Samples that `corpus samples` prints, those of Megatron-LM among them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/commands/command_test.hpp"
#include "tests/app/words.hpp"

namespace trireme::app {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Numbers = std::vector<int>;

class SamplesCommand : public CommandTest {
 protected:
  SamplesCommand() : CommandTest("corpus") {}

  int samples(const std::string& model, const Words& arguments) {
    return run(Words{"samples", corpus_, "--model-type", model} + arguments);
  }
  Words lines() const {
    std::istringstream stream(output_);
    Words lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  /// Builds a corpus of sentences with a vocabulary of ten words.
  void build(const std::string& text, const Words& arguments) {
    const std::string vocabulary = file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n.\nthe\nship\nrow\n##s\n");
    const Words tokenizer = arguments.back() == "bytes" ? Words() : Words{"--vocab-file", vocabulary};
    const Words words{"build", "--input", file("a.txt", text), "--output", corpus_};
    ASSERT_EQ(run(words + arguments + tokenizer), 0) << message_;
  }

  std::string corpus_ = directory_ / "corpus.h5";
};

TEST_F(SamplesCommand, PrintsWhatBertReads) {
  build("The ship rows. The ship. Rows the ship.", "--split-sentences --tokenizer wordpiece");
  const Words options = "--seq-length 20 --short-seq-prob 0 --epochs 2";
  ASSERT_EQ(samples("bert", options), 0) << message_;
  EXPECT_EQ(lines().size(), 2u);
  ASSERT_EQ(samples("bert", options + "--bert-no-binary-head --first 1 --count 1 --mask-prob 1"), 0) << message_;
  ASSERT_EQ(lines().size(), 1u);
  const json sample = json::parse(output_);
  EXPECT_EQ(sample.size(), 8u);
  Numbers text = sample.at("text"), loss_mask;
  const Numbers labels = sample.at("labels");
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (labels[i] >= 0) text[i] = labels[i];
    loss_mask.push_back(labels[i] >= 0);
  }
  EXPECT_THAT(text, ElementsAre(2, 6, 7, 8, 9, 5, 6, 7, 5, 8, 9, 6, 7, 5, 3, 0, 0, 0, 0, 0));
  EXPECT_EQ(sample.at("loss_mask"), json(loss_mask));
  EXPECT_THAT(loss_mask, Contains(1));
  EXPECT_EQ(sample.at("types"), json(Numbers(20)));
  EXPECT_THAT(sample.at("padding_mask").get<Numbers>(),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ(sample.at("is_random"), json(0));
  EXPECT_EQ(sample.at("truncated"), json(0));
  EXPECT_EQ(sample.at("map"), json({0, 3, 17}));
}

TEST_F(SamplesCommand, PrintsWhatAGptReads) {
  build("abcdefghij", "--tokenizer bytes");
  ASSERT_EQ(samples("gpt", "--seq-length 3"), 0) << message_;
  Words texts = lines();
  std::ranges::sort(texts);
  EXPECT_THAT(texts, ElementsAre(R"({"text": [100, 101, 102, 103]})", R"({"text": [103, 104, 105, 106]})",
                                 R"({"text": [97, 98, 99, 100]})"));
  ASSERT_EQ(samples("gpt", "--seq-length 3 --max-samples 4"), 0) << message_;
  EXPECT_EQ(lines().size(), 6u);  // two epochs
  ASSERT_EQ(samples("gpt", "--seq-length 3 --split 5,5 --from-split valid"), 0) << message_;
  EXPECT_THAT(lines(), ElementsAre(R"({"text": [102, 103, 104, 105]})"));
}

TEST_F(SamplesCommand, RefusesCorporaThatBertCannotRead) {
  build("The ship rows.", "--tokenizer bytes");
  EXPECT_EQ(samples("bert", "--seq-length 20"), 3);
  EXPECT_THAT(message_, HasSubstr("was made by tokenizer bytes, but BERT reads WordPiece. Try to build it again with "
                                  "--tokenizer wordpiece --split-sentences"));
  build("The ship rows.", "--tokenizer wordpiece");
  EXPECT_EQ(samples("bert", "--seq-length 20"), 3);
  EXPECT_THAT(message_, HasSubstr("has no sentences, which BERT's samples consist of. Try to build it again with "
                                  "--split-sentences"));
  build("The ship rows.", "--split-sentences --tokenizer wordpiece");
  EXPECT_EQ(samples("bert", "--seq-length 20"), 3);
  EXPECT_THAT(message_, HasSubstr("gives a BERT sample"));
  for (const std::string special : {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}) {
    std::string vocabulary = "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\nthe\n";
    vocabulary.erase(vocabulary.find(special), special.size() + 1);
    EXPECT_EQ(run({"build", "--input", file("a.txt", "the"), "--output", directory_ / "b.h5", "--tokenizer",
                   "wordpiece", "--vocab-file", file("vocab.txt", vocabulary)}),
              3);
    EXPECT_THAT(message_, HasSubstr("vocab.txt do not make a tokenizer: the vocabulary has no " + special));
  }
}

TEST_F(SamplesCommand, RefusesInvalidOptions) {
  build("The ship rows. The ship.", "--split-sentences --tokenizer wordpiece");
  const auto expect_refused = [&](const std::string& model, const Words& arguments, const std::string& words) {
    EXPECT_EQ(samples(model, arguments), 2);
    EXPECT_THAT(message_, HasSubstr(words));
    EXPECT_EQ(output_, "");
  };
  expect_refused("bert", {}, "--seq-length must be given");
  expect_refused("bert", "--seq-length 4", "--seq-length 4 must be at least 5 for BERT");
  expect_refused("bert", "--seq-length 20 --mask-prob 0", "--mask-prob 0 must be above 0 and at most 1");
  expect_refused("bert", "--seq-length 20 --short-seq-prob 2", "--short-seq-prob 2");
  expect_refused("bert", "--seq-length 20 --first 1", "--first 1 request samples beyond the last: there are 1");
  expect_refused("bert", "--seq-length 20 --count 2", "beyond the last: there are 1");
  expect_refused("gpt", "--seq-length 3 --mask-prob 0.2", "--mask-prob needs --model-type bert");
}

/// Samples and maps that Megatron-LM 23.06 made of 49 documents of WordPiece ids.
class MegatronSamples : public SamplesCommand {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TRIREME_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of outside test data";
    std::ifstream golden(std::string(folder) + "/../oracle/bert_samples.json");
    if (!golden) GTEST_SKIP() << "there is no oracle/bert_samples.json beside the folder that TRIREME_TEST_DATA names";
    golden_ = json::parse(golden);
    write_indexed_dataset();
    ASSERT_EQ(run({"import", directory_ / "golden", "--output", corpus_, "--tokenizer", "wordpiece", "--vocab-file",
                   std::string(folder) + "/bert/bert-base-uncased-vocab.txt"}),
              0)
        << message_;
  }

  /// Writes the documents as golden.bin and golden.idx.
  void write_indexed_dataset() {
    const auto add = [](std::string& text, auto number) {
      text.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    std::string tokens, sizes, begins, boundaries;
    std::int64_t sentences = 0;
    add(boundaries, sentences);
    for (const json& document : golden_.at("documents")) {
      for (const json& sentence : document) {
        add(sizes, static_cast<std::int32_t>(sentence.size()));
        add(begins, static_cast<std::int64_t>(tokens.size()));
        for (const json& id : sentence) add(tokens, id.get<std::uint16_t>());
      }
      sentences += std::ssize(document);
      add(boundaries, sentences);
    }
    std::string head("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08", 18);
    add(head, sentences);
    add(head, std::ssize(golden_.at("documents")) + 1);
    file("golden.idx", head + sizes + begins + boundaries);
    file("golden.bin", tokens);
  }

  /// Options of a setting; those of one segment without the binary head.
  static Words options_of(const json& setting, std::int64_t sequence_length, bool binary_head) {
    Words words{"--seq-length",     std::to_string(sequence_length),    "--seed", setting.at("seed").dump(),
                "--short-seq-prob", setting.at("short_seq_prob").dump()};
    const auto add = [&](const std::string& option, const char* name) {
      if (!setting.contains(name) || setting.at(name).is_null()) return;
      words.insert(words.end(), {option, setting.at(name).dump()});
    };
    add("--epochs", "num_epochs");
    add("--max-samples", "max_num_samples");
    add("--mask-prob", "masked_lm_prob");
    if (!binary_head) words.emplace_back("--bert-no-binary-head");
    return words;
  }

  json golden_;
};

TEST_F(MegatronSamples, ArePrinted) {
  int count = 0;
  for (const json& set : golden_.at("sets")) {
    ASSERT_EQ(samples("bert", options_of(set, set.at("max_seq_length"), set.at("binary_head"))), 0) << message_;
    const Words printed = lines();
    ASSERT_EQ(std::ssize(printed), set.at("dataset_length"));
    for (json expected : set.at("samples")) {
      const std::string& line = printed.at(expected.at("idx").get<std::size_t>());
      expected["map"] = expected.at("row");
      expected.erase("row");
      expected.erase("idx");
      ASSERT_EQ(json::parse(line), expected);
      ++count;
    }
  }
  EXPECT_EQ(count, 360);
}

TEST_F(MegatronSamples, FollowItsMaps) {
  int count = 0;
  for (const json& map : golden_.at("maps")) {
    Words options = options_of(map, map.at("max_seq_length").get<int>() + 3, map.at("min_num_sent") == 2);
    if (const json& documents = map.at("documents"); !documents.is_null()) {
      const int first = documents[0], end = documents[1];
      options.insert(options.end(), {"--split", fmt::format("{},{},{}", first, end - first, 49 - end), "--split-by",
                                     "documents", "--from-split", "valid"});
    }
    const json& rows = map.at("rows");
    ASSERT_EQ(samples("bert", options), rows.empty() ? 3 : 0) << message_;
    Words printed, expected;
    for (const std::string& line : lines()) printed.push_back(line.substr(line.find("\"map\"")));
    for (const json& row : rows) {
      expected.push_back(fmt::format("\"map\": [{}, {}, {}]}}", row[0].dump(), row[1].dump(), row[2].dump()));
    }
    ASSERT_EQ(printed, expected);
    ++count;
  }
  EXPECT_EQ(count, 26);
}

}  // namespace
}  // namespace trireme::app
