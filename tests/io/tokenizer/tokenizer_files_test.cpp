#include "io/tokenizer/tokenizer_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "src/base/error.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

class BpeFiles : public ::testing::Test {
 protected:
  data::BpeVocabulary read(const std::string& vocabulary, const std::string& merges) {
    std::ofstream(directory_ / "vocab.json", std::ios::binary) << vocabulary;
    std::ofstream(directory_ / "merges.txt", std::ios::binary) << merges;
    return read_bpe_files(directory_ / "vocab.json", directory_ / "merges.txt");
  }
  void expect_error(const std::string& vocabulary, const std::string& merges, const std::string& words) {
    EXPECT_THAT([&] { read(vocabulary, merges); },
                ThrowsMessage<DataError>(::testing::AllOf(HasSubstr(words), ::testing::Not(HasSubstr("json.exception")),
                                                          ::testing::SizeIs(::testing::Lt(1000)))));
  }
  test::TemporaryDirectory directory_;
};

TEST_F(BpeFiles, SpellBytesAsPrintableCharacters) {
  const auto vocabulary =
      read(R"({"<|endoftext|>": 3, "\u0120a": 0, "\u00e9": 1, "\u010a": 2})", "#version: 0.2\r\nĠ a\r\n# #\n\nÃ ©\n");
  EXPECT_THAT(vocabulary.tokens, ElementsAre(" a", "\xE9", "\n", "<|endoftext|>"));
  EXPECT_EQ(vocabulary.end_of_document, 3);
  EXPECT_THAT(vocabulary.merges, ElementsAre(Pair(" ", "a"), Pair("#", "#"), Pair("\xC3", "\xA9")));
}

TEST_F(BpeFiles, AreRefusedNamingTheEntry) {
  expect_error("not json", "", "not JSON: parse error at line 1, column 2: ");
  expect_error("{\"a\": " + std::string(10000, '1') + "e}", "", "not JSON");
  expect_error("{\"" + std::string(10000, 'a') + "\": -1}", "", "a negative number stands at entry 'aaa");
  expect_error("[1]", "", "an array stands at its top");
  expect_error("7", "", "a number stands at its top");
  expect_error(R"({"a": "b"})", "", "a string stands at entry 'a'");
  expect_error(R"({"a": {"b": 1}})", "", "an object stands at entry 'a'");
  expect_error(R"({"a": 1.5})", "", "not whole stands at entry 'a'");
  expect_error(R"({"a": -1})", "", "a negative number stands at entry 'a'");
  expect_error(R"({"a": 99999999999999999999999})", "", "entry 'a'");
  expect_error(R"({"a": 4000000000})", "", "entry 'a' has the id 4000000000");
  expect_error(R"({"a": 0, "b": 0})", "", "both have the id 0");
  expect_error(R"({"a": 0, "a": 1})", "", "entry 'a' occurs twice");
  expect_error(R"({"a": 0, "b": 2})", "", "no token with the id 1");
  expect_error(R"({"a b": 0})", "", "entry 'a b'");
  expect_error(R"({"": 0})", "", "entry ''");
  expect_error(R"({"a": 0})", "", "<|endoftext|>");
  expect_error("", "", "not JSON");
  expect_error("{}", "", "<|endoftext|>");
  expect_error("{\"a\": " + std::string(100000, '['), "", "entry 'a'");
}

TEST_F(BpeFiles, AreRefusedNamingTheLine) {
  const std::string vocabulary = R"({"<|endoftext|>": 0})";
  expect_error(vocabulary, "#version: 0.2\na b\nab\n", "merges.txt:3: 'ab' is not two tokens");
  expect_error(vocabulary, "a b c\n", "merges.txt:1:");
  expect_error(vocabulary, "a b\n a\n", "merges.txt:2:");
  expect_error(vocabulary, "a \xFF\n", "merges.txt:1:");
  EXPECT_THROW(read_bpe_files(directory_ / "absent", directory_ / "merges.txt"), IoError);
  EXPECT_THROW(read_bpe_files(directory_.path(), directory_ / "merges.txt"), DataError);
}

TEST(WordPieceFile, HasOneTokenPerLine) {
  EXPECT_THAT(parse_wordpiece_file("[PAD]\r\na\n##b", "vocab.txt").tokens, ElementsAre("[PAD]", "a", "##b"));
  EXPECT_THAT([] { parse_wordpiece_file("a\n\nb", "vocab.txt"); },
              ThrowsMessage<DataError>(HasSubstr("vocab.txt:2: the line has 0 bytes")));
  EXPECT_THAT([] { parse_wordpiece_file("a\n\xFF\n", "vocab.txt"); },
              ThrowsMessage<DataError>(HasSubstr("vocab.txt:2: the token is not UTF-8")));
}

}  // namespace
}  // namespace trireme::io
