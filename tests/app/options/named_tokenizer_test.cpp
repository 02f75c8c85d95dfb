#include "src/app/options/named_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/tokenizer/tokenizer_files.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class NamedTokenizerTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }
  /// Compares with the tokenizer of a corpus.
  static std::vector<std::string> compared(const NamedTokenizer& named, const data::Tokenizer& held) {
    return named.compare("corpus a.h5", held.name(), held.payload());
  }
  static void expect_refused(const NamedTokenizer& named, const data::Tokenizer& held, const std::string& words) {
    EXPECT_THAT([&] { compared(named, held); }, ThrowsMessage<DataError>(HasSubstr(words)));
  }

  test::TemporaryDirectory directory_;
  std::string words_ = file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nship\n");
  std::string others_ = file("others.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\noar\n");
  std::unique_ptr<data::Tokenizer> bytes_ = data::make_byte_tokenizer();
  std::unique_ptr<data::Tokenizer> wordpiece_ = data::make_wordpiece_tokenizer(io::read_wordpiece_file(words_));
};

TEST_F(NamedTokenizerTest, AcceptsTheSameTokenizerSilently) {
  EXPECT_THAT(compared({}, *bytes_), IsEmpty());
  EXPECT_THAT(compared({.type = "ByteLevelTokenizer"}, *bytes_), IsEmpty());
  EXPECT_THAT(compared({.type = "NullTokenizer"}, *bytes_), IsEmpty());
  EXPECT_THAT(compared({.type = "BertWordPieceLowerCase", .vocabulary_file = words_}, *wordpiece_), IsEmpty());
}

TEST_F(NamedTokenizerTest, RefusesAnotherTypeOrVocabularyAndNamesBoth) {
  expect_refused(
      {.type = "GPT2BPETokenizer"}, *wordpiece_,
      "--tokenizer-type GPT2BPETokenizer is not the tokenizer that corpus a.h5 holds: wordpiece in lower case");
  expect_refused({.type = "BertWordPieceCase"}, *wordpiece_, "wordpiece in lower case");
  expect_refused({.type = "Llama2Tokenizer"}, *bytes_, "corpus a.h5 holds: bytes");
  expect_refused({.vocabulary_file = others_}, *wordpiece_,
                 "others.txt: not the tokenizer wordpiece that corpus a.h5 holds");
}

TEST_F(NamedTokenizerTest, LogsWhatCouldNotBeCompared) {
  EXPECT_THAT(
      compared({.type = "GPT2BPETokenizer", .vocabulary_file = directory_ / "none", .merge_file = directory_ / "no"},
               *data::make_null_tokenizer(100, 99)),
      ElementsAre(HasSubstr("--tokenizer-type GPT2BPETokenizer was not checked: corpus a.h5 has only ids"),
                  AllOf(HasSubstr("--vocab-file "), HasSubstr("/none, --merge-file "),
                        HasSubstr("not there, and not needed: corpus a.h5 holds its tokenizer"))));
  EXPECT_THAT(compared({.type = "MyTokenizer"}, *bytes_), ElementsAre(HasSubstr("unknown type")));
  EXPECT_THAT(compared({.model = words_}, *bytes_), ElementsAre(HasSubstr("another kind of file")));
}

}  // namespace
}  // namespace trireme::app
