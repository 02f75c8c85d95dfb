#include "io/huggingface/tokenizer_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "io/tokenizer/huggingface_file.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/small_bpe.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using test::message_of;
using testing::HasSubstr;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// Writes a tokenizer's files but for those of `left_out`, and reads them again.
std::unique_ptr<data::Tokenizer> reread(const data::Tokenizer& tokenizer, std::set<std::string> left_out = {}) {
  const test::TemporaryDirectory folder;
  for (const auto& [name, text] : tokenizer_files(tokenizer, tokenizer.vocabulary_size(), 64)) {
    if (!left_out.contains(name)) write(folder / name, text);
  }
  return read_tokenizer_of(folder.path(), "");
}

data::WordPieceVocabulary small_wordpiece() {
  return {.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "the", "\"", "##\\"}};
}

TEST(TokenizerJson, FilesThatAreWrittenMakeAnEqualTokenizer) {
  const test::TemporaryDirectory folder;
  const test::SmallBpe files(folder.path());
  data::BpeVocabulary bpe = read_bpe_files(files.vocabulary_path, files.merges_path);
  const auto gpt2 = data::make_gpt2_tokenizer(bpe);
  EXPECT_EQ(reread(*gpt2)->digest(), gpt2->digest());
  EXPECT_EQ(reread(*gpt2, {"tokenizer.json"})->digest(), gpt2->digest());
  for (const data::WordPattern pattern : {data::WordPattern::llama3, data::WordPattern::qwen2}) {
    bpe.pattern = pattern;
    bpe.compose = pattern == data::WordPattern::qwen2;
    bpe.whole_words = pattern == data::WordPattern::llama3;
    bpe.special = {bpe.end_of_document};
    const auto tokenizer = data::make_huggingface_tokenizer(bpe);
    EXPECT_EQ(reread(*tokenizer)->digest(), tokenizer->digest());
  }
  for (const bool lower_case : {true, false}) {
    data::WordPieceVocabulary vocabulary = small_wordpiece();
    vocabulary.lower_case = lower_case;
    const auto wordpiece = data::make_wordpiece_tokenizer(vocabulary);
    EXPECT_EQ(reread(*wordpiece)->digest(), wordpiece->digest());
    EXPECT_EQ(reread(*wordpiece, {"tokenizer.json"})->digest(), wordpiece->digest());
  }
}

TEST(TokenizerJson, BytesAreABpeWithoutMerges) {
  const auto bytes = data::make_byte_tokenizer();
  const std::string file = tokenizer_files(*bytes, 257, 64).at("tokenizer.json");
  const auto bpe = data::make_huggingface_tokenizer(parse_huggingface_file(file, "tokenizer.json", ""));
  ASSERT_EQ(bpe->vocabulary_size(), 257);
  EXPECT_EQ(bpe->end_of_document(), 256);
  std::vector<std::int32_t> ids, wanted;
  const std::string text = "a\xc3\xa9 \n\x01";
  bpe->encode(text, ids);
  bytes->encode(text, wanted);
  EXPECT_EQ(ids, wanted);
  EXPECT_EQ(reread(*bytes)->digest(), bytes->digest());
}

TEST(TokenizerJson, IdsFromElsewhereHaveNoFiles) {
  EXPECT_TRUE(tokenizer_files(*data::make_null_tokenizer(10, 0), 10, 8).empty());
  const test::TemporaryDirectory folder;
  EXPECT_EQ(read_tokenizer_of(folder.path(), ""), nullptr);
}

TEST(TokenizerJson, AWordPieceOfAnotherKindIsAnError) {
  const test::TemporaryDirectory folder;
  const auto expect_error = [&](const std::string& text, const char* message) {
    write(folder / "tokenizer.json", text);
    EXPECT_THAT(message_of<DataError>([&] { read_tokenizer_of(folder.path(), ""); }), HasSubstr(message)) << text;
  };
  expect_error("{", "not JSON");
  expect_error(R"({"model": {"type": "WordPiece", "vocab": [], "unk_token": "[UNK]"}})", "no 'vocab'");
  const std::string model =
      R"("model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",)";
  expect_error("{" + model + R"("vocab": {"a": 0, "b": 2}}})", "ids are missing");
  expect_error("{" + model + R"("vocab": {"a": 0, "b": 0}}})", "two tokens have the id 0");
  expect_error("{" + model + R"("vocab": {"a": 0}}, "normalizer": {"type": "Lowercase"}})", "not those of BERT");
}

}  // namespace
}  // namespace trireme::io
