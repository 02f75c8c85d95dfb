// tokenizers/unigram_* are small unigram models in tokenizer.json, with the ids that tokenizers gives to some texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/huggingface/tokenizer_json.hpp"
#include "io/posix/file.hpp"
#include "io/tokenizer/huggingface_file.hpp"
#include "src/base/error.hpp"
#include "src/data/tokenizer/precompiled_charsmap.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class UnigramFile : public testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = std::string(TRIREME_FIXTURES "/tokenizers/") + GetParam();
  const std::unique_ptr<data::Tokenizer> tokenizer_ = read_tokenizer_of(folder_, "");

  json file(const char* name) const { return json::parse(read_whole_file(folder_ + "/" + name, 1 << 20)); }
};

TEST_P(UnigramFile, GivesTheIdsOfTokenizersAlsoOfTextsThatAreCut) {
  const auto copy = data::tokenizer_from_payload(tokenizer_->name(), tokenizer_->payload());
  EXPECT_EQ(copy->payload(), tokenizer_->payload());
  int cuts = 0;
  for (const json& pair : file("expected.json")) {
    const auto text = pair[0].get<std::string>();
    const auto wanted = pair[1].get<std::vector<std::int32_t>>();
    EXPECT_EQ(test::encode(*tokenizer_, text), wanted) << text;
    EXPECT_EQ(test::encode(*copy, text), wanted) << text;
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (!tokenizer_->can_cut(text, at)) continue;
      ++cuts;
      std::vector<std::int32_t> joined = test::encode(*tokenizer_, text.substr(0, at));
      tokenizer_->encode_continuation(std::string_view(text).substr(at), joined);
      EXPECT_EQ(joined, wanted) << text << " at " << at;
    }
  }
  EXPECT_EQ(cuts > 20, GetParam() == std::string("unigram_words")) << cuts;
}

TEST_P(UnigramFile, ComesBackFromItsExport) {
  EXPECT_EQ(tokenizer_->end_of_document(), 1);
  const test::TemporaryDirectory folder;
  for (const auto& [name, text] : tokenizer_files(*tokenizer_, tokenizer_->vocabulary_size(), 64)) {
    std::ofstream(folder / name) << text;
  }
  EXPECT_EQ(read_tokenizer_of(folder.path(), "")->ids_digest(), tokenizer_->ids_digest());
  std::string text;
  tokenizer_->decode(test::encode(*tokenizer_, "the ships row"), text);
  EXPECT_EQ(text, "the ships row");
}

TEST_P(UnigramFile, NamesThePartThatIsWrong) {
  const json good = file("tokenizer.json");
  const auto error = [&](const char* pointer, const json& value) {
    json file = good;
    file[json::json_pointer(pointer)] = value;
    return test::message_of<DataError>(
        [&] { data::make_huggingface_tokenizer(parse_huggingface_file(file.dump(), "t.json", {})); });
  };
  EXPECT_THAT(error("/model/type", "WordLevel"), HasSubstr("this program takes BPE and Unigram"));
  EXPECT_THAT(error("/model/vocab", json::object()),
              HasSubstr("t.json: the model has no 'vocab' of tokens and scores"));
  EXPECT_THAT(error("/model/vocab/4", json::array({"x"})), HasSubstr("entry 4 of 'vocab' is [\"x\"], not a token"));
  EXPECT_THAT(error("/model/vocab/5/0", good["model"]["vocab"][6][0]), HasSubstr("twice"));
  EXPECT_THAT(error("/model/vocab/1/0", "</t>"), HasSubstr("both have the id 1"));
  EXPECT_THAT(error("/model/unk_id", nullptr), HasSubstr("token 'unk_id' has the id null"));
  EXPECT_THAT(error("/model/unk_id", 9999), HasSubstr("has no unknown token"));
  EXPECT_THAT(error("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}),
              HasSubstr("is not base64"));
  EXPECT_THAT(error("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////wAAAAA="}}),
              HasSubstr("precompiled_charsmap of 8 bytes is damaged"));
  EXPECT_THAT(error("/pre_tokenizer", {{"type", "WhitespaceSplit"}}), HasSubstr("needs a Metaspace after it"));
}

INSTANTIATE_TEST_SUITE_P(Forms, UnigramFile, testing::Values("unigram_t5", "unigram_words", "unigram_bytes"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PrecompiledCharsmap, DoesNotReadBeyondADamagedOne) {
  const json t5 = json::parse(read_whole_file(TRIREME_FIXTURES "/tokenizers/unigram_t5/tokenizer.json", 1 << 20));
  const data::BpeVocabulary vocabulary = parse_huggingface_file(t5.dump(), "t", {});
  const std::string good = vocabulary.normalizer.at(0).text;
  EXPECT_EQ(data::PrecompiledCharsmap(good).apply("\uFF21\r\ne\u0301\u200B\xFF\u4E2D\u6587"),
            "A \u00E9\xFF\u4E2D\u6587");
  for (std::size_t at = 4; at < good.size(); ++at) {
    for (const char byte : {'\x00', '\x7F', '\xFF'}) {
      std::string damaged = good;
      damaged[at] = byte;
      try {
        data::PrecompiledCharsmap(damaged).apply("\uFF21\r\ne\u0301\u200B\xFF\u4E2D\u6587");
      } catch (const DataError&) {
      }
    }
  }
}

}  // namespace
}  // namespace trireme::io
