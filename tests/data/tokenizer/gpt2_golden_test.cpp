#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/gpt2_files.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

/// Tests with GPT-2's published vocabulary and texts, which are not part of the project.
class Gpt2Golden : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TRIREME_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of outside test data";
    folder_ = folder;
    tokenizer_ =
        make_gpt2_tokenizer(test::read_gpt2_files(folder_ + "/gpt2_bpe/encoder.json", folder_ + "/gpt2_bpe/vocab.bpe"));
  }

  std::vector<std::int32_t> encode(const std::string& text) const { return test::encode(*tokenizer_, text); }

  std::string folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(Gpt2Golden, TokensOfEveryLineMatchTheReference) {
  std::ifstream file(folder_ + "/golden/golden_gpt2_bpe.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto example = nlohmann::json::parse(line);
    const auto text = example.at("text").get<std::string>();
    const auto ids = encode(text);
    EXPECT_EQ(ids, example.at("ids").get<std::vector<std::int32_t>>()) << text;
    EXPECT_EQ(test::decode(*tokenizer_, ids), text);
  }
  EXPECT_EQ(lines, 1000);
}

TEST_F(Gpt2Golden, TokensOfUnusualWhiteSpaceMatchTheReference) {
  const auto examples =
      nlohmann::json::parse(test::read_file(folder_ + "/golden/gpt2_bpe_whitespace_class_edge_cases.json"));
  EXPECT_EQ(examples.size(), 7u);
  for (const auto& example : examples) {
    EXPECT_EQ(encode(example.at("text")), example.at("tiktoken_rust").get<std::vector<std::int32_t>>()) << example;
  }
}

}  // namespace
}  // namespace trireme::data
