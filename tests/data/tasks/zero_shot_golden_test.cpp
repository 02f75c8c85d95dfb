#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/tasks/zero_shot/lambada.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "tests/support/gpt2_files.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// Detokenized texts, windows and examples that Megatron-LM 23.06 made from WikiText and LAMBADA.
class TasksGolden : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TRIREME_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of outside test data";
    data_ = folder;
    std::ifstream file(data_ + "/../oracle/tasks.json");
    if (!file) GTEST_SKIP() << "there is no oracle/tasks.json beside the folder that TRIREME_TEST_DATA names";
    golden_ = json::parse(file);
    tokenizer_ =
        make_gpt2_tokenizer(test::read_gpt2_files(data_ + "/gpt2_bpe/encoder.json", data_ + "/gpt2_bpe/vocab.bpe"));
  }

  std::string read(const json& description) const {
    return test::read_file(data_ + "/../" + description.at("file").get<std::string>().substr(sizeof "shared"));
  }

  /// A text as the reference stores it: inputs and targets with padding, and a mask of its targets.
  struct Padded {
    Ids text;
    std::vector<std::uint8_t> mask;
  };
  static Padded padded(const ScoredTexts& texts, std::int64_t index, std::int64_t sequence_length) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(std::max(sequence_length, texts.length(index))));
    Padded result{Ids(labels.size()), {}};
    SampleView view;
    view.tokens = result.text;
    view.labels = labels;
    texts.read(index, view);
    result.text.push_back(texts.length(index) == std::ssize(labels) ? texts.ids(index).back() : texts.padding());
    // The reference puts the text's last token before the padding.
    result.text[static_cast<std::size_t>(texts.length(index))] = texts.ids(index).back();
    for (const std::int32_t label : labels) result.mask.push_back(label >= 0);
    return result;
  }

  json golden_;
  std::string data_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TasksGolden, DetokenizersMatchTheReference) {
  for (const json& pair : golden_.at("wikitext_detokenizer")) {
    EXPECT_EQ(detokenized(pair.at(0), Detokenizer::wikitext), pair.at(1)) << pair;
  }
  for (const json& pair : golden_.at("ptb_detokenizer")) {
    EXPECT_EQ(detokenized(pair.at(0), Detokenizer::ptb), pair.at(1)) << pair;
  }
  for (const json& pair : golden_.at("get_detokenizer")) {
    const Detokenizer rule = detokenizer_of(pair.at(0).get<std::string>());
    EXPECT_EQ(name_of(rule) + std::string(rule == Detokenizer::none ? "" : "_detokenizer"),
              pair.at(1).is_null() ? "none" : pair.at(1).get<std::string>())
        << pair;
  }
}

TEST_F(TasksGolden, WikiTextMatchesTheReference) {
  const json& golden = golden_.at("wikitext");
  std::vector<json> files = golden.at("other_files");
  files.push_back(golden);
  for (const json& expected : files) {
    SCOPED_TRACE(expected.at("file"));
    const std::string text = read(expected);
    EXPECT_EQ(detokenized(text, Detokenizer::wikitext).size(), expected.at("detokenized").at("bytes"));
    const WikiText set = make_wikitext(text, Detokenizer::wikitext, *tokenizer_, 1024, 32);
    EXPECT_EQ(set.original_tokens, expected.at("num_original_tokens"));
    EXPECT_EQ(set.tokenized_tokens, expected.at("num_tokenized_tokens"));
    if (expected.contains("windows_1024_32")) {
      EXPECT_EQ(set.windows.size(), expected.at("windows_1024_32"));
    }
  }
}

TEST_F(TasksGolden, WindowsOfWikiTextMatchTheReference) {
  const json& golden = golden_.at("wikitext");
  const Ids ids = test::encode(*tokenizer_, detokenized(read(golden), Detokenizer::wikitext));
  for (const json& run : golden.at("runs")) {
    const std::int64_t s = run.at("seq_length");
    const std::int64_t overlap = run.at("overlapping_eval").is_null() ? s : run.at("overlapping_eval").get<int>();
    SCOPED_TRACE(testing::Message() << s << " " << overlap);
    const ScoredTexts windows = overlapping_windows(ids, s, overlap, tokenizer_->end_of_document());
    EXPECT_EQ(windows.size(), run.at("windows"));
    EXPECT_EQ(windows.scored(), run.at("scored_targets"));
  }
}

TEST_F(TasksGolden, SmallWindowsMatchTheReference) {
  for (const json& expected : golden_.at("wikitext").at("small_windows")) {
    SCOPED_TRACE(expected.dump().substr(0, 80));
    Ids ids(expected.at("tokens").get<std::size_t>());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(100 + i);
    const std::int64_t s = expected.at("seq_length");
    const json& overlap = expected.at("overlapping_eval");
    const ScoredTexts windows = overlapping_windows(ids, s, overlap.is_null() ? s : overlap.get<std::int64_t>(), 50256);
    ASSERT_EQ(windows.size(), expected.at("windows").size());
    for (std::int64_t i = 0; i < windows.size(); ++i) {
      const json& window = expected.at("windows").at(static_cast<std::size_t>(i));
      EXPECT_EQ(padded(windows, i, s).text, window.at("text").get<Ids>());
      EXPECT_EQ(padded(windows, i, s).mask, window.at("pad_mask").get<std::vector<std::uint8_t>>());
    }
  }
}

TEST_F(TasksGolden, LambadaMatchesTheReference) {
  const json& golden = golden_.at("lambada");
  std::vector<std::string> lines;
  std::ifstream file(data_ + "/lambada/lambada_test.jsonl");
  for (std::string line; lines.size() < 300 && std::getline(file, line);) lines.push_back(json::parse(line).at("text"));
  for (const json& set : golden.at("sets")) {
    const auto texts = set.contains("texts") ? set.at("texts").get<std::vector<std::string>>() : lines;
    for (const auto& [key, target] :
         {std::pair("not_strict", LambadaTarget::last_token), {"strict", LambadaTarget::last_word}}) {
      const json& expected = set.at(key);
      ScoredTexts examples(tokenizer_->end_of_document());
      for (const std::string& text : texts) add_lambada(text, target, *tokenizer_, {256, false}, examples);
      ASSERT_EQ(examples.size(), expected.at("tokens").size());
      for (std::int64_t i = 0; i < examples.size(); ++i) {
        Ids ids = expected.at("tokens").at(i).get<Ids>();
        const Ids labels = expected.at("labels").at(i).get<Ids>();
        ids.insert(ids.end(), labels.begin(), labels.end());
        EXPECT_EQ(Ids(examples.ids(i).begin(), examples.ids(i).end()), ids);
        EXPECT_EQ(examples.scored(i), std::min(std::ssize(labels), std::ssize(ids) - 1));
      }
      for (const json& example : expected.at("at_seq_256")) {
        const Padded made = padded(examples, example.at("example"), 256);
        EXPECT_EQ(made.text, example.at("text").get<Ids>());
        EXPECT_EQ(made.mask, example.at("pad_mask").get<std::vector<std::uint8_t>>());
      }
      if (!set.contains("texts") || target != LambadaTarget::last_word) continue;
      std::vector<std::int64_t> lengths;
      for (std::int64_t i = 0; i < examples.size(); ++i)
        lengths.push_back(std::max<std::int64_t>(4, examples.length(i)));
      EXPECT_EQ(json(lengths), golden.at("longer_than_seq_length").at("mask_lengths"));
    }
  }
}

}  // namespace
}  // namespace trireme::data
