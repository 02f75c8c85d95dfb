#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/text.hpp"
#include "tests/app/commands/command_test.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;

class TokenizerCommand : public CommandTest {
 protected:
  TokenizerCommand() : CommandTest("tokenizer") {}
  std::string whole(const std::string& path) const {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
};

TEST_F(TokenizerCommand, TrainsTheSameVocabularyWithAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "the ship's crew rows " + std::to_string(i % 97) + " oars\n";
  const std::string input = file("a.txt", text);
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"body\": \"the captain\\u00e9 sleeps\"}\n";
  const std::string json = file("b.jsonl", lines);
  std::vector<std::string> files;
  for (const char* workers : {"1", "2", "3"}) {
    const std::string folder = directory_ / ("bpe" + std::string(workers));
    ASSERT_EQ(run({"train", "--input", input, json, "--json-key", "body", "--output", folder, "--vocab-size", "300",
                   "--special-tokens", "<|endoftext|>", "<pad>", "--workers", workers}),
              0)
        << message_;
    files.push_back(whole(folder + "/vocab.json") + whole(folder + "/merges.txt"));
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[0], files[2]);
  EXPECT_THAT(files[0], HasSubstr("\"the\": "));
  EXPECT_THAT(files[0], HasSubstr("\"<|endoftext|>\": 298, \"<pad>\": 299}"));

  // A text comes back.
  const std::vector<std::string> tokenizer{"--tokenizer",  "gpt2",
                                           "--vocab-file", directory_ / "bpe1/vocab.json",
                                           "--merge-file", directory_ / "bpe1/merges.txt"};
  const std::string bytes("the crew\0\xFF <pad>\n", 17);
  std::vector<std::string> arguments{"encode", "--input", file("c.txt", bytes)};
  arguments.insert(arguments.end(), tokenizer.begin(), tokenizer.end());
  ASSERT_EQ(run(arguments), 0) << message_;
  arguments = {"decode", "--input", file("ids.txt", output_)};
  arguments.insert(arguments.end(), tokenizer.begin(), tokenizer.end());
  ASSERT_EQ(run(arguments), 0) << message_;
  EXPECT_EQ(output_, bytes);
}

TEST_F(TokenizerCommand, TrainsWithEveryPattern) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "IT'S 1234567 it's\n\n";
  const std::string input = file("a.txt", text), words = file("b.txt", "IT'S 1234567");
  // "IT'S" is one word for o200k, three for starcoder and falcon. Digits stand alone for qwen3, tekken and starcoder,
  // three together for the others.
  const std::vector<std::pair<std::string, std::string>> expected{
      {"cl100k", "IT,'S, ,123,456,7"}, {"qwen3", "IT,'S, ,1,2,3,4,5,6,7"}, {"tekken", "IT,'S, ,1,2,3,4,5,6,7"},
      {"o200k", "IT'S, ,123,456,7"},   {"deepseek", "IT,'S, ,123,456,7"},  {"starcoder", "IT,',S, ,1,2,3,4,5,6,7"},
      {"falcon", "IT,',S, ,123,456,7"}};
  for (const auto& [pattern, tokens] : expected) {
    const std::string folder = directory_ / pattern;
    ASSERT_EQ(run({"train", "--input", input, "--output", folder, "--vocab-size", "400", "--pattern", pattern}), 0)
        << message_;
    ASSERT_EQ(run({"encode", "--input", words, "--tokenizer", "huggingface", "--tokenizer-model",
                   folder + "/tokenizer.json", "--pieces"}),
              0)
        << message_;
    std::string found;
    for (const std::string_view line : split(output_, '\n')) found += "," + std::string(line.substr(7));
    EXPECT_EQ(found.substr(1), tokens) << pattern;
  }
  EXPECT_EQ(run({"train", "--input", input, "--output", directory_ / "none", "--pattern", "none"}), 2);
}

TEST_F(TokenizerCommand, LeavesNoTwoTokenizersInAFolder) {
  const std::string input = file("a.txt", "the crew rows the ship\n");
  const auto train = [&](const char* folder, const char* pattern) {
    return run(
        {"train", "--input", input, "--output", directory_ / folder, "--vocab-size", "260", "--pattern", pattern});
  };
  ASSERT_EQ(train("gpt2", "gpt2"), 0) << message_;
  EXPECT_EQ(train("gpt2", "gpt2"), 0) << message_;
  EXPECT_EQ(train("gpt2", "qwen3"), 2);
  EXPECT_THAT(message_, HasSubstr("gpt2 has vocab.json, of another tokenizer"));
  ASSERT_EQ(train("qwen3", "qwen3"), 0) << message_;
  EXPECT_EQ(train("qwen3", "gpt2"), 2);
  EXPECT_THAT(message_, HasSubstr("qwen3 has tokenizer.json, of another tokenizer"));
}

TEST_F(TokenizerCommand, ForgetsRareWordsTheSameWithAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 30000; ++i)
    text += " w" + std::string(1, static_cast<char>('a' + i % 26)) + std::to_string(i % 5000);
  std::string rare;
  for (int i = 0; i < 3000; ++i) {
    rare += ' ';
    for (int n = i; n > 0; n /= 26) rare += static_cast<char>('a' + n % 26);
  }
  const std::string input = file("a.txt", rare + text);
  std::vector<std::string> files;
  for (const char* workers : {"1", "4"}) {
    const std::string folder = directory_ / ("bpe" + std::string(workers));
    ASSERT_EQ(run({"train", "--input", input, "--output", folder, "--vocab-size", "400", "--max-words", "1000",
                   "--workers", workers}),
              0)
        << message_;
    files.push_back(whole(folder + "/merges.txt"));
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST_F(TokenizerCommand, ShowsOneTokenPerLine) {
  ASSERT_EQ(run({"encode", "--tokenizer", "bytes", "--input", file("a.txt", "a\n"), "--pieces"}), 0) << message_;
  EXPECT_EQ(output_, "    97 a\n    10 \\n\n");
  ASSERT_EQ(run({"decode", "--tokenizer", "bytes", "--input", file("ids.txt", " 104\n105\t")}), 0) << message_;
  EXPECT_EQ(output_, "hi");
}

TEST_F(TokenizerCommand, ReturnsTheExitCodeOfTheError) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"learn"}), 2);
  EXPECT_THAT(message_, HasSubstr("there is no command trireme tokenizer learn"));
  const std::string text = file("a.txt", "some text");
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--input", text, "--output", directory_ / "bpe"});
    return run(more);
  };
  EXPECT_EQ(train({"--vocab-size", "256"}), 2);
  EXPECT_EQ(train({"--special-tokens", "<pad>"}), 2);
  EXPECT_THAT(message_, HasSubstr("the first must be <|endoftext|>"));
  EXPECT_EQ(train({"--special-tokens", "<|endoftext|>", "a b"}), 2);
  EXPECT_EQ(train({"--special-tokens", "<|endoftext|>", "<x>", "<x>"}), 2);
  EXPECT_EQ(run({"train", "--input", file("empty.txt", ""), "--output", directory_ / "bpe"}), 3);
  EXPECT_EQ(run({"train", "--input", file("a.jsonl", "{\"text\": \"some text\"}\n"), "--output", directory_ / "bpe",
                 "--max-line-bytes", "9"}),
            3);
  EXPECT_THAT(message_, HasSubstr("a.jsonl:1: the line has more than 9 bytes"));
  EXPECT_EQ(run({"train", "--input", directory_ / "absent", "--output", directory_ / "bpe"}), 5);
  EXPECT_EQ(run({"train", "--input", text, "--output", text}), 5);
  EXPECT_EQ(run({"decode", "--tokenizer", "bytes", "--input", text}), 3);
  EXPECT_THAT(message_, HasSubstr("'some text', at byte 0, is not a token id"));
  EXPECT_EQ(run({"decode", "--tokenizer", "bytes", "--input", file("ids.txt", "1 300")}), 3);
  EXPECT_EQ(run({"encode", "--tokenizer", "bytes", "--input", directory_ / "absent"}), 5);
  EXPECT_EQ(run({"encode"}), 2);
  EXPECT_EQ(run({"encode", "--tokenizer", "bytes", "--input", file("a.gz", "\x1F\x8B\x08")}), 3);
  EXPECT_THAT(message_, HasSubstr("a.gz is not text, its first bytes are those of gzip: unpack it first"));
}

}  // namespace
}  // namespace trireme::app
