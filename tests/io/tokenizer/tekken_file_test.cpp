// tokenizers/tekken is a small tekken.json, with the ids that mistral-common gives to some texts.
#include "io/tokenizer/tekken_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/huggingface/tokenizer_json.hpp"
#include "io/posix/file.hpp"
#include "io/tokenizer/base64.hpp"
#include "src/base/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json json_of(const std::string& name) {
  return json::parse(read_whole_file(TRIREME_FIXTURES "/tokenizers/tekken/" + name, 1 << 20));
}

TEST(TekkenFile, GivesTheIdsOfMistralCommonAlsoOfTextsThatAreCut) {
  const auto tokenizer = read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/tekken", "");
  EXPECT_EQ(tokenizer->vocabulary_size(), 283);  // without the last token, which the file's size cuts off
  int cuts = 0;
  for (const json& pair : json_of("expected.json")) {
    const auto text = pair[0].get<std::string>();
    const auto wanted = pair[1].get<std::vector<std::int32_t>>();
    EXPECT_EQ(test::encode(*tokenizer, text), wanted) << text;
    EXPECT_EQ(test::decode(*tokenizer, wanted), text);
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (!tokenizer->can_cut(text, at)) continue;
      ++cuts;
      std::vector<std::int32_t> joined = test::encode(*tokenizer, text.substr(0, at));
      tokenizer->encode_continuation(std::string_view(text).substr(at), joined);
      EXPECT_EQ(joined, wanted) << text << " at " << at;
    }
  }
  EXPECT_GT(cuts, 10);
}

TEST(TekkenFile, HasSpecialTokensFirstAndABeginningBeforeTexts) {
  const auto tokenizer = read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/tekken", "");
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  EXPECT_EQ(tokenizer->special().bos, 1);
  EXPECT_EQ(tokenizer->special().eos, 2);
  EXPECT_EQ(tokenizer->special().pad, 5);
  EXPECT_THAT(tokenizer->encode_prompt("the"), ElementsAre(1, 267));
  EXPECT_THAT(tokenizer->encode_chat("[INST]the<SPECIAL_9>"), ElementsAre(3, 267, 9));
  const std::string end_of_prompt = "[/INST]";
  EXPECT_EQ(read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/tekken", end_of_prompt)->end_of_document(), 4);
  // The file's older form names no special tokens.
  json old = json_of("tekken.json");
  old.erase("special_tokens");
  old["config"]["version"] = "v3";
  old["config"]["default_num_special_tokens"] = 25;
  const auto names = data::make_huggingface_tokenizer(read_tekken(old, "t", {}))->special_names();
  ASSERT_EQ(names.size(), 25u);
  EXPECT_EQ(names[9].first, "[TOOL_CALLS]");
  EXPECT_EQ(names[19].first, "[TOOL_CONTENT]");
  EXPECT_EQ(names[20].first, "<SPECIAL_20>");
}

TEST(TekkenFile, ComesBackFromCorporaAndAsATokenizerJson) {
  const auto tokenizer = read_tokenizer_of(TRIREME_FIXTURES "/tokenizers/tekken", "");
  const auto stored = data::tokenizer_from_payload(tokenizer->name(), tokenizer->payload());
  EXPECT_EQ(stored->payload(), tokenizer->payload());
  const test::TemporaryDirectory folder;
  for (const auto& [name, text] : tokenizer_files(*stored, stored->vocabulary_size(), 64)) {
    std::ofstream(folder / name) << text;
  }
  const auto exported = read_tokenizer_of(folder.path(), "");
  EXPECT_TRUE(data::compare_tokenizers(exported->name(), exported->payload(), tokenizer->name(), tokenizer->payload())
                  .same_ids);
  EXPECT_THAT(exported->encode_prompt("the"), ElementsAre(1, 267));
}

TEST(TekkenFile, NamesThePartThatIsWrong) {
  const json good = json_of("tekken.json");
  const auto error = [&](const char* pointer, const json& value) {
    json file = good;
    file[json::json_pointer(pointer)] = value;
    return test::message_of<DataError>([&] { data::make_huggingface_tokenizer(read_tekken(file, "t.json", {})); });
  };
  EXPECT_THAT(error("/config/default_vocab_size", -1), HasSubstr("t.json: 'default_vocab_size' is -1, not a number"));
  EXPECT_THAT(error("/config/default_vocab_size", 10), HasSubstr("'default_vocab_size' 10 leaves no token"));
  EXPECT_THAT(error("/config/default_vocab_size", 500), HasSubstr("'vocab' has fewer than 490 tokens"));
  EXPECT_THAT(error("/config/default_num_special_tokens", 5), HasSubstr("there are 6 special tokens"));
  EXPECT_THAT(error("/config/pattern", nullptr), HasSubstr("no 'pattern'"));
  EXPECT_THAT(error("/vocab/7/rank", 8), HasSubstr("token 7 has the rank 8"));
  EXPECT_THAT(error("/vocab/7/token_bytes", "!"), HasSubstr("'token_bytes' of token 7 are not 1 to 1024 bytes"));
  EXPECT_THAT(error("/vocab/7/token_bytes", "CA=="), HasSubstr("tokens 7 and 8 have the same bytes"));
  EXPECT_THAT(error("/vocab/7/token_bytes", "Y2E="), HasSubstr("no token for the single byte 7"));
  EXPECT_THAT(error("/special_tokens/1/rank", 2), HasSubstr("special token '<s>' has the rank 2, not 1"));
  EXPECT_THAT(error("/special_tokens/1/token_str", ""), HasSubstr("special token 1 has no 'token_str'"));
  EXPECT_THAT(error("/special_tokens/2/token_str", "x"), HasSubstr("no special token '</s>' to end documents"));
  json file = good;
  file["special_tokens"] = nullptr;
  file["config"]["version"] = "v13";
  EXPECT_THAT(test::message_of<DataError>([&] { read_tekken(file, "t.json", {}); }),
              HasSubstr("no 'special_tokens', which version \"v13\" needs"));
}

TEST(Base64, GivesBytesOrNothing) {
  EXPECT_EQ(bytes_of_base64(""), "");
  EXPECT_EQ(bytes_of_base64("Zg=="), "f");
  EXPECT_EQ(bytes_of_base64("Zm8="), "fo");
  EXPECT_EQ(bytes_of_base64("Zm8"), "fo");
  EXPECT_EQ(bytes_of_base64("Zm9v+/8="), "foo\xFB\xFF");
  for (const char* text : {"Z", "Zg=", "Zh==", "Z===", "Zm9v=", "Zm 9", "Zg==Zg=="}) {
    EXPECT_FALSE(bytes_of_base64(text)) << text;
  }
}

}  // namespace
}  // namespace trireme::io
