#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> tokens_of(std::vector<std::string> words) {
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  tokens.insert(tokens.end(), words.begin(), words.end());
  return tokens;
}

/// Returns the text of each piece.
std::vector<std::string> pieces(const std::vector<std::string>& vocabulary, std::string_view text,
                                bool lower_case = true) {
  std::vector<std::string> result;
  for (const std::int32_t id : test::encode(*make_wordpiece_tokenizer({vocabulary, lower_case}), text))
    result.push_back(vocabulary.at(static_cast<std::size_t>(id)));
  return result;
}

TEST(WordPiece, TakesTheLongestPieceFirst) {
  const auto vocabulary = tokens_of({"un", "una", "##aff", "##able", "##affable", "##ffable", "af", "##x"});
  EXPECT_THAT(pieces(vocabulary, "unaffable"), ElementsAre("una", "##ffable"));
  EXPECT_THAT(pieces(vocabulary, "unaffableq af afx"), ElementsAre("[UNK]", "af", "af", "##x"));
  EXPECT_THAT(pieces(vocabulary, ""), ElementsAre());
}

TEST(WordPiece, SplitsAtWhiteSpacePunctuationAndIdeographs) {
  const auto vocabulary = tokens_of({"a", "b", "$", ".", "\u4E2D", "\u6587", "\u2014", "##b"});
  EXPECT_THAT(pieces(vocabulary, " a\t$b.\r\n\u2028a\u00A0b "), ElementsAre("a", "$", "b", ".", "a", "b"));
  EXPECT_THAT(pieces(vocabulary, "a\u4E2D\u6587b\u2014a"), ElementsAre("a", "\u4E2D", "\u6587", "b", "\u2014", "a"));
  EXPECT_THAT(pieces(vocabulary, "[MASK]"), ElementsAre("[UNK]", "[UNK]", "[UNK]"));
}

TEST(WordPiece, LeavesOutControlCharactersAndBytesThatAreNotUtf8) {
  const auto vocabulary = tokens_of({"a", "##b", "b"});
  EXPECT_THAT(pieces(vocabulary, std::string_view("a\0b\x01 a\u200Db a\uFFFD\xFF\xE2\x82"
                                                  "b",
                                                  19)),
              ElementsAre("a", "##b", "a", "##b", "a", "##b"));
}

TEST(WordPiece, BringsTextToLowerCaseWithoutAccentsUnlessCased) {
  const auto vocabulary = tokens_of({"cafe", "Caf\u00E9", "i", "\u03C3\u03BF\u03C6\u03BF\u03C2", "\u1112", "##\u1161"});
  EXPECT_THAT(pieces(vocabulary, "Caf\u00E9 CAFE\u0301 \u0130"), ElementsAre("cafe", "cafe", "i"));
  EXPECT_THAT(pieces(vocabulary, "\u03A3\u039F\u03A6\u039F\u03A3"), ElementsAre("\u03C3\u03BF\u03C6\u03BF\u03C2"));
  EXPECT_THAT(pieces(vocabulary, "\uD558"), ElementsAre("\u1112", "##\u1161"));
  EXPECT_THAT(pieces(vocabulary, "Caf\u00E9 cafe CAFE", false), ElementsAre("Caf\u00E9", "cafe", "[UNK]"));
}

TEST(WordPiece, TakesWordsOfUpToAHundredCharactersOrTheLimitGiven) {
  const auto vocabulary = tokens_of({"\u03B1", "##\u03B1"});
  std::string word;
  for (int i = 0; i < 100; ++i) word += "\u03B1";
  EXPECT_EQ(pieces(vocabulary, word).size(), 100u);
  EXPECT_THAT(pieces(vocabulary, word + "\u03B1"), ElementsAre("[UNK]"));
  const auto longer = make_wordpiece_tokenizer({vocabulary, true, 101});
  const auto copy = tokenizer_from_payload("wordpiece", longer->payload());
  EXPECT_EQ(copy->payload(), longer->payload());
  const auto ids = test::encode(*copy, word + "\u03B1 " + word + "\u03B1\u03B1");
  EXPECT_EQ(ids.size(), 102u);
  EXPECT_EQ(ids.back(), 1);  // [UNK]
}

// The second function encodes each run of characters at once, without a cache.
TEST(WordPiece, GivesTheTokensThatItGivesWithTheirBytes) {
  const auto vocabulary =
      tokens_of({"a", "b",        "z",        "Z",      "##a",    "word",   "##word",   "##2024", "2024",   "7",
                 "'", "s",        "re",       "##re",   ".",      "-",      "e",        "##e",    "\u03C3", "/",
                 "i", "##\u03C2", "##\u03C3", "\u03C2", "\u4E2D", "\u0915", "##\u0915", "##7",    "##b"});
  std::mt19937 random(4);
  for (const bool lower_case : {true, false}) {
    const WordPieceTokenizer tokenizer({vocabulary, lower_case});
    for (int trial = 0; trial < 1000; ++trial) {
      const std::string text = test::random_text(random, random() % 200);
      std::vector<std::int32_t> ids;
      for (const TextToken& token : tokenizer.encode_with_offsets(text)) ids.push_back(token.id);
      ASSERT_EQ(test::encode(tokenizer, text), ids) << text;
    }
  }
}

TEST(WordPiece, TokensHaveTheirBytesInTheText) {
  const std::vector<std::string> vocabulary =
      tokens_of({"caf", "##e", ".", "i", "##x", "\u4E2D", "\u1112", "##\u1161", "a"});
  const WordPieceTokenizer tokenizer({vocabulary, true});
  const auto parts = [&](std::string_view text) {
    std::string parts;
    for (const TextToken& token : tokenizer.encode_with_offsets(text)) {
      parts += vocabulary[static_cast<std::size_t>(token.id)] + "=";
      parts += text.substr(token.begin, token.end - token.begin);
      parts += '|';
    }
    return parts;
  };
  EXPECT_EQ(parts(" Caf\u00E9. CAFE\u0301x"), "caf=Caf|##e=\u00E9|.=.|caf=CAF|##e=E\u0301|##x=x|");
  EXPECT_EQ(parts("\u0130x\u4E2Da"), "i=\u0130|##x=x|\u4E2D=\u4E2D|a=a|");
  EXPECT_EQ(parts("zoo.a"), "[UNK]=zoo|.=.|a=a|");
  // A Hangul syllable becomes two pieces of one character. Control characters in a word are skipped.
  EXPECT_EQ(parts("\uD558"), "\u1112=\uD558|##\u1161=\uD558|");
  EXPECT_EQ(parts("a \x01i\xFFx"), "a=a|i=i|##x=x|");
  EXPECT_EQ(parts("\u0301 "), "");
}

TEST(WordPiece, DecodesToWordsAndAddsMegatronsSpecialTokens) {
  const auto tokenizer = make_wordpiece_tokenizer({tokens_of({"un", "##able", "."}), true});
  EXPECT_EQ(tokenizer->vocabulary_size(), 10);
  EXPECT_EQ(tokenizer->end_of_document(), 9);
  EXPECT_EQ(test::decode(*tokenizer, {5, 6, 7, 9}), "unable .");
  EXPECT_THAT([&] { test::decode(*tokenizer, {10}); },
              ThrowsMessage<DataError>(HasSubstr("token 10 is not in the vocabulary of 10 ids")));
}

TEST(WordPiece, NamesErrorsInAVocabulary) {
  const auto expect_error = [](const std::vector<std::string>& tokens, const char* words) {
    EXPECT_THAT([&] { make_wordpiece_tokenizer({tokens, true}); }, ThrowsMessage<DataError>(HasSubstr(words)));
  };
  expect_error({"[PAD]", "[UNK]", "[CLS]", "[SEP]"}, "the vocabulary has no [MASK]");
  expect_error(tokens_of({"a", "b", "a"}), "token 'a' twice, as id 5 and id 7");
  expect_error(tokens_of({"##a", "##a"}), "token '##a' twice");
  expect_error(tokens_of({""}), "the token of id 5 is empty");
  expect_error(tokens_of({"\xFF"}), "token 5 ('\\xff') is not UTF-8");
}

TEST(WordPiece, PayloadMakesAnEqualTokenizer) {
  for (const bool lower_case : {true, false}) {
    const auto tokenizer = make_wordpiece_tokenizer({tokens_of({"\\", "\u00E9", "##e"}), lower_case});
    const std::string payload = tokenizer->payload();
    const auto copy = tokenizer_from_payload("wordpiece", payload);
    EXPECT_EQ(copy->payload(), payload);
    for (std::size_t size = 0; size < payload.size(); ++size) {
      ASSERT_THROW(tokenizer_from_payload("wordpiece", payload.substr(0, size)), DataError) << size;
    }
    EXPECT_THROW(tokenizer_from_payload("wordpiece", payload + "x\n"), DataError);
  }
}

TEST(WordPieceGolden, TokensOfEveryLineMatchTheReference) {
  const char* folder = std::getenv("TRIREME_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of outside test data";
  WordPieceVocabulary vocabulary;
  std::ifstream tokens(std::string(folder) + "/bert/bert-base-uncased-vocab.txt");
  for (std::string line; std::getline(tokens, line);) vocabulary.tokens.push_back(line);
  const auto tokenizer = std::make_unique<WordPieceTokenizer>(vocabulary);
  EXPECT_EQ(tokenizer->vocabulary_size(), 30524);
  std::ifstream file(std::string(folder) + "/golden/golden_bert_wordpiece.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto example = nlohmann::json::parse(line);
    const auto text = example.at("text").get<std::string>();
    const auto ids = test::encode(*tokenizer, text);
    EXPECT_EQ(ids, example.at("ids").get<std::vector<std::int32_t>>()) << example.at("src") << ": " << text;
    std::vector<std::int32_t> with_offsets;
    std::size_t last_begin = 0;
    for (const TextToken& token : tokenizer->encode_with_offsets(text)) {
      with_offsets.push_back(token.id);
      ASSERT_TRUE(last_begin <= token.begin && token.begin < token.end && token.end <= text.size()) << text;
      last_begin = token.begin;
    }
    EXPECT_EQ(with_offsets, ids) << text;
  }
  EXPECT_EQ(lines, 1000);
}

}  // namespace
}  // namespace trireme::data
