#include "io/huggingface/tokenizer_json.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "io/huggingface/special_tokens_json.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/tokenizer/huggingface_file.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/small_bpe.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using test::message_of;
using testing::HasSubstr;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string text_in(const std::string& path) { return read_whole_file(path, 1 << 20); }

/// Writes a tokenizer's files but for those of `left_out`, and reads them again.
std::unique_ptr<data::Tokenizer> reread(const data::Tokenizer& tokenizer, std::set<std::string> left_out = {}) {
  const test::TemporaryDirectory folder;
  for (const auto& [name, text] : tokenizer_files(tokenizer, tokenizer.vocabulary_size(), 64)) {
    if (!left_out.contains(name)) write(folder / name, text);
  }
  return read_tokenizer_of(folder.path(), "");
}

bool is_equal(const data::Tokenizer& one, const data::Tokenizer& other) {
  return one.name() == other.name() && one.end_of_document() == other.end_of_document() &&
         data::compare_tokenizers(one.name(), one.payload(), other.name(), other.payload()).same_ids;
}

data::WordPieceVocabulary small_wordpiece() {
  return {.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "the", "\"", "##\\"}};
}

TEST(TokenizerJson, FilesThatAreWrittenMakeAnEqualTokenizer) {
  const test::TemporaryDirectory folder;
  const test::SmallBpe files(folder.path());
  data::BpeVocabulary bpe = read_bpe_files(files.vocabulary_path, files.merges_path);
  const auto gpt2 = data::make_gpt2_tokenizer(bpe);
  EXPECT_TRUE(is_equal(*reread(*gpt2), *gpt2));
  EXPECT_TRUE(is_equal(*reread(*gpt2, {"tokenizer.json"}), *gpt2));
  for (const data::WordPattern pattern : {data::WordPattern::llama3, data::WordPattern::qwen2}) {
    bpe.pattern = pattern;
    if (pattern == data::WordPattern::qwen2) bpe.normalizer = {{}};
    bpe.whole_words = pattern == data::WordPattern::llama3;
    bpe.special = {bpe.end_of_document};
    const auto tokenizer = data::make_huggingface_tokenizer(bpe);
    EXPECT_TRUE(is_equal(*reread(*tokenizer), *tokenizer));
  }
  for (const bool lower_case : {true, false}) {
    data::WordPieceVocabulary vocabulary = small_wordpiece();
    vocabulary.lower_case = lower_case;
    const auto wordpiece = data::make_wordpiece_tokenizer(vocabulary);
    EXPECT_TRUE(is_equal(*reread(*wordpiece), *wordpiece));
    EXPECT_TRUE(is_equal(*reread(*wordpiece, {"tokenizer.json"}), *wordpiece));
  }
}

TEST(TokenizerJson, BytesAreABpeWithoutMerges) {
  const auto bytes = data::make_byte_tokenizer();
  const std::string file = tokenizer_files(*bytes, 257, 64).at("tokenizer.json");
  const auto bpe = data::make_huggingface_tokenizer(parse_huggingface_file(file, "tokenizer.json", {}));
  ASSERT_EQ(bpe->vocabulary_size(), 257);
  EXPECT_EQ(bpe->end_of_document(), 256);
  std::vector<std::int32_t> ids, wanted;
  const std::string text = "a\xc3\xa9 \n\x01";
  bpe->encode(text, ids);
  bytes->encode(text, wanted);
  EXPECT_EQ(ids, wanted);
  EXPECT_TRUE(is_equal(*reread(*bytes), *bytes));
}

/// Writes a tokenizer's files but for those of `left_out`, with a tokenizer_config.json. Returns the message of
/// reading.
std::string error_with(const data::Tokenizer& tokenizer, const std::string& settings,
                       const std::set<std::string>& left_out = {}, const std::string& added = {}) {
  const test::TemporaryDirectory folder;
  for (const auto& [name, text] : tokenizer_files(tokenizer, tokenizer.vocabulary_size(), 64)) {
    if (!left_out.contains(name)) write(folder / name, text);
  }
  write(folder / "tokenizer_config.json", settings);
  if (!added.empty()) write(folder / "added_tokens.json", added);
  return message_of<DataError>([&] { read_tokenizer_of(folder.path(), ""); });
}

// The ids in tokenizers/NAME/expected.json come from SentencePiece.
class SentencePieces : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      tokenizer_ = read_tokenizer_of(folder_, "");
    } catch (const EnvironmentError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  const std::string folder_ = std::string(TRIREME_FIXTURES "/tokenizers/") + GetParam();
  std::unique_ptr<data::Tokenizer> tokenizer_;
};

TEST_P(SentencePieces, GiveTheIdsOfTheLibraryAlsoOfTextsThatAreCut) {
  std::int64_t cuts = 0;
  for (const json& triple : json::parse(text_in(folder_ + "/expected.json"))) {
    const auto text = triple[0].get<std::string>();
    const auto wanted = triple[1].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> ids;
    tokenizer_->encode(text, ids);
    EXPECT_EQ(ids, wanted) << text;
    std::string decoded;
    tokenizer_->decode(ids, decoded);
    EXPECT_EQ(decoded, triple[2].get<std::string>()) << text;
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (!tokenizer_->can_cut(text, at)) continue;
      ++cuts;
      std::vector<std::int32_t> joined;
      tokenizer_->encode(std::string_view(text).substr(0, at), joined);
      tokenizer_->encode_continuation(std::string_view(text).substr(at), joined);
      EXPECT_EQ(joined, wanted) << text << " at " << at;
    }
  }
  EXPECT_EQ(cuts > 20, GetParam() == std::string("sentencepiece_bpe")) << cuts;
}

TEST_P(SentencePieces, AlwaysPutASpaceBeforeTexts) {
  EXPECT_THAT(error_with(*tokenizer_, R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})"),
              HasSubstr("'add_prefix_space' is false, but the tokenizer.model puts a space before texts"));
}

TEST_P(SentencePieces, ComeBackFromCorporaAndExports) {
  EXPECT_EQ(tokenizer_->name(), "sentencepiece");
  EXPECT_EQ(tokenizer_->end_of_document(), 2);
  EXPECT_EQ(tokenizer_->special().bos, 1);
  const auto stored = data::tokenizer_from_payload(tokenizer_->name(), tokenizer_->payload());
  EXPECT_EQ(stored->payload(), tokenizer_->payload());
  const auto files = tokenizer_files(*stored, stored->vocabulary_size(), 64);
  EXPECT_EQ(files.at("tokenizer.model"), text_in(folder_ + "/tokenizer.model"));
  const json settings = json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(settings["bos_token"], "<s>");
  EXPECT_EQ(settings["add_bos_token"], false);
  EXPECT_TRUE(is_equal(*reread(*stored), *stored));
  EXPECT_THAT(message_of<DataError>([&] { data::make_sentence_piece_tokenizer("not one"); }),
              HasSubstr("SentencePiece cannot read the tokenizer.model"));
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieces, testing::Values("unigram", "sentencepiece_bpe"),
                         [](const auto& info) { return std::string(info.param); });

class SpecialTokensJson : public testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = std::string(TRIREME_FIXTURES "/tokenizers/") + GetParam();
  const std::unique_ptr<data::Tokenizer> tokenizer_ = read_tokenizer_of(folder_, "");

  json file(const std::string& name) const { return json::parse(text_in(folder_ + "/" + name)); }
};

TEST_P(SpecialTokensJson, GiveTheIdsOfTransformers) {
  const bool ends = tokenizer_->name() == "wordpiece";  // [SEP] follows the text
  for (const json& pair : file("expected.json")) {
    std::vector<std::int32_t> ids = tokenizer_->encode_prompt(pair[0].get<std::string>());
    if (ends) ids.push_back(pair[1].back().get<std::int32_t>());
    EXPECT_EQ(ids, pair[1].get<std::vector<std::int32_t>>()) << pair[0];
  }
}

TEST_P(SpecialTokensJson, ReturnFromTheExportOfACheckpoint) {
  const auto stored = data::tokenizer_from_payload(tokenizer_->name(), tokenizer_->payload());
  EXPECT_EQ(stored->special(), tokenizer_->special());
  // A BERT's export lacks the tokens that its tokenizer adds.
  const std::int64_t rows = std::ssize(file("tokenizer.json")["model"]["vocab"]);
  const auto written = tokenizer_files(*stored, tokenizer_->name() == "wordpiece" ? rows : 1000, 64);
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "chat_template.jinja"}) {
    ASSERT_EQ(written.contains(name), is_there(folder_ + "/" + name)) << name;
    if (!written.contains(name)) continue;
    EXPECT_EQ(written.at(name), text_in(folder_ + "/" + name));
  }
  const json original = file("tokenizer.json"), ours = json::parse(written.at("tokenizer.json"));
  for (const char* name : {"added_tokens", "post_processor", "normalizer", "pre_tokenizer"}) {
    // Gemma's pre-tokenizer cuts at spaces that the normalizer has replaced: it is left out.
    const bool is_without_effect = name == std::string("pre_tokenizer") && GetParam() == std::string("gemma");
    EXPECT_EQ(ours[name], is_without_effect ? json() : original[name]) << name;
  }
  if (original["model"].value("byte_fallback", false)) {
    EXPECT_EQ(ours["decoder"], original["decoder"]);
  }
  const test::TemporaryDirectory again;
  for (const auto& [name, text] : written) write(again / name, text);
  EXPECT_EQ(read_tokenizer_of(again.path(), "")->special(), tokenizer_->special());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SpecialTokensJson, testing::Values("llama3", "added", "bert", "llama2", "gemma"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SpecialTokensOfFiles, HaveRolesEndsAndATemplate) {
  const auto llama3 = read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/llama3", "");
  const data::SpecialTokens& special = llama3->special();
  EXPECT_EQ(special.bos, 272);
  EXPECT_EQ(special.eos, 274);
  EXPECT_EQ(special.pad, 276);
  EXPECT_EQ(llama3->end_of_document(), 273);
  EXPECT_THAT(llama3->stops(), testing::ElementsAre(273, 274));
  EXPECT_THAT(chat_templates_of(special).at("default"), testing::StartsWith("{{ bos_token }}{% for message"));
  EXPECT_EQ(named_tokens_of(*llama3).at("bos_token"), "<|begin_of_text|>");
  const auto added = read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/added", "");
  EXPECT_EQ(added->end_of_document(), *added->special().eos);  // no known name ends documents
  EXPECT_TRUE(added->special().added.at(276).lstrip);
  EXPECT_TRUE(chat_templates_of(added->special()).empty());
}

TEST(SpecialTokensOfFiles, InConversationsAreFoundAsTransformersDoes) {
  const auto ids_of = [](const std::string& name, const std::string& text) {
    return read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/" + name, "")->encode_chat(text);
  };
  // Ids of the library tokenizers.
  EXPECT_THAT(ids_of("llama2", "</s>a b</s> a</s>b"),
              testing::ElementsAre(2, 278, 262, 278, 101, 2, 278, 278, 262, 2, 278, 101));
  EXPECT_THAT(ids_of("gemma", "<eos>a b<eos> a<eos>b"), testing::ElementsAre(1, 263, 279, 102, 1, 279, 263, 1, 102));
  EXPECT_THAT(ids_of("llama3", "<|turn|>a b<|turn|> a<|turn|>b"),
              testing::ElementsAre(274, 64, 220, 65, 274, 220, 64, 274, 65));
}

TEST(SpecialTokensOfFiles, OfFilesWithoutAPostProcessorFollowTheirSettings) {
  const test::TemporaryDirectory folder, exported;
  const test::SmallBpe files(folder.path());
  std::filesystem::rename(files.vocabulary_path, folder / "vocab.json");
  std::filesystem::rename(files.merges_path, folder / "merges.txt");
  write(
      folder / "tokenizer_config.json",
      R"({"bos_token": {"content": "<|endoftext|>"}, "eos_token": "a", "add_bos_token": true, "add_eos_token": true})");
  const auto tokenizer = read_tokenizer_of(folder.path(), "");
  EXPECT_THAT(tokenizer->encode_prompt(""), testing::ElementsAre(tokenizer->end_of_document()));
  for (const auto& [name, text] : tokenizer_files(*tokenizer, 1000, 64)) write(exported / name, text);
  EXPECT_EQ(read_tokenizer_of(exported.path(), "")->special().prefix, tokenizer->special().prefix);
  const json written = json::parse(text_in(exported / "tokenizer.json"))["post_processor"];
  EXPECT_EQ(written["single"].size(), 3u);
  EXPECT_EQ(written["pair"][4], json::parse(R"({"Sequence": {"id": "B", "type_id": 1}})"));
}

TEST(SpecialTokensOfFiles, ThatAreUnsupportedOrDamagedAreRefused) {
  const test::TemporaryDirectory folder;
  json file = json::parse(text_in(TRIREME_FIXTURES "/tokenizers/llama3/tokenizer.json"));
  const auto error_of = [&] {
    write(folder / "tokenizer.json", file.dump());
    return message_of<DataError>([&] { read_tokenizer_of(folder.path(), ""); });
  };
  file["post_processor"] = {{"type", "Magic"}};
  EXPECT_THAT(error_of(), HasSubstr("the post-processor {\"type\":\"Magic\"} is not supported, only ByteLevel"));
  file["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 5000}}, {"sep", {"</s>", 1}}};
  EXPECT_THAT(error_of(), HasSubstr("the special token 5000 is not in the vocabulary of 277 ids"));
  file["post_processor"] = nullptr;
  write(folder / "generation_config.json", "[");
  EXPECT_THAT(error_of(), HasSubstr("generation_config.json: not JSON"));
}

TEST(TokenizerJson, SettingsThatMakeOtherIdsAreRefused) {
  const test::TemporaryDirectory folder;
  const test::SmallBpe files(folder.path());
  const auto gpt2 = data::make_gpt2_tokenizer(read_bpe_files(files.vocabulary_path, files.merges_path));
  const auto wordpiece = data::make_wordpiece_tokenizer(small_wordpiece());
  for (const std::set<std::string>& left_out : {std::set<std::string>{}, {"tokenizer.json"}}) {
    EXPECT_THAT(error_with(*gpt2, R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true})", left_out),
                HasSubstr("'add_prefix_space' is true"));
    for (const char* setting : {"strip_accents", "tokenize_chinese_chars"}) {
      EXPECT_THAT(error_with(*wordpiece, fmt::format(R"({{"do_lower_case": true, "{}": false}})", setting), left_out),
                  HasSubstr(fmt::format("'{}' is false", setting)));
    }
    for (const data::Tokenizer* tokenizer : {&*gpt2, &*wordpiece}) {
      EXPECT_THAT(
          error_with(*tokenizer, R"({"added_tokens_decoder": {"9": {"content": "<x>", "special": false}}})", left_out),
          HasSubstr("tokenizer_config.json adds the token '<x>'"));
    }
  }
  EXPECT_THAT(error_with(*wordpiece, R"({"do_lower_case": false})"), HasSubstr("'do_lower_case' is false, unlike"));
  EXPECT_THAT(error_with(*gpt2, R"({"tokenizer_class": "Qwen2Tokenizer"})", {"tokenizer.json"}),
              HasSubstr("'tokenizer_class' is \"Qwen2Tokenizer\", whose words"));
  EXPECT_THAT(error_with(*gpt2, "{}", {"tokenizer.json"}, R"({"<x>": 999})"),
              HasSubstr("added_tokens.json adds the token '<x>'"));
}

TEST(TokenizerJson, SettingsOfPublishedModelsAreTaken) {
  const test::TemporaryDirectory folder;
  const test::SmallBpe files(folder.path());
  std::filesystem::rename(files.vocabulary_path, folder / "vocab.json");
  std::filesystem::rename(files.merges_path, folder / "merges.txt");
  write(folder / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": false,
    "pad_token": "<pad>", "added_tokens_decoder": {"256": {"content": "<|endoftext|>", "special": true},
                             "64": {"content": "a", "special": false}}})");
  write(folder / "added_tokens.json", R"({"<pad>": 999})");
  const auto tokenizer = read_tokenizer_of(folder.path(), "");
  EXPECT_EQ(tokenizer_files(*tokenizer, 1000, 64).at("added_tokens.json"), text_in(folder / "added_tokens.json"));
}

TEST(TokenizerJson, AnEndOfDocumentsIsOnlyTakenWhereItIsChosen) {
  const auto error_of = [](const std::string& name, const char* end) {
    return message_of<ConfigError>([&] { read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/" + name, end); });
  };
  EXPECT_THAT(error_of("bert", "[SEP]"), HasSubstr("<eod_token> [SEP]: only a BPE or Unigram"));
  EXPECT_THAT(error_of(".", "</s>"), HasSubstr("<eod_token> </s>: only a BPE or Unigram"));
  EXPECT_NO_THROW(read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/llama3", "<|end_of_text|>"));
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
  for (const char* name : {"clean_text", "handle_chinese_chars"}) {
    expect_error("{" + model + R"("vocab": {"a": 0}}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "normalizer": )" +
                     fmt::format(R"({{"type": "BertNormalizer", "lowercase": true, "{}": false}}}})", name),
                 name);
  }
}

}  // namespace
}  // namespace trireme::io
