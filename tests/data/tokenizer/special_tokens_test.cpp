#include "src/data/tokenizer/special_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "src/base/error.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

using test::encode;
using test::message_of;
using test::vocabulary_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// As of a Llama: <s> before each text, two ends of generation.
SpecialTokens llama() {
  return {.bos = 1,
          .eos = 2,
          .pad = {},
          .stops = {2, 7},
          .prefix = {1},
          .added = {{1, {.special = true}}, {7, {.lstrip = true, .normalized = true}}},
          .files = {{"chat_template.jinja", "{{ bos }}\n\\ \xc3\xa9"}, {"tokenizer_config.json", ""}}};
}

TEST(SpecialTokens, ReturnFromAPayloadInFrontOfAnyDefinition) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(make_null_tokenizer(20, 19));
  tokenizers.push_back(make_gpt2_tokenizer(vocabulary_of({{"a", "b"}})));
  tokenizers.push_back(make_wordpiece_tokenizer({{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"}}));
  for (const auto& tokenizer : tokenizers) {
    const std::string plain = tokenizer->payload();
    tokenizer->set_special(llama());
    const std::string payload = tokenizer->payload();
    EXPECT_TRUE(payload.ends_with(plain));
    for (const char c : payload) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
    const auto copy = tokenizer_from_payload(tokenizer->name(), payload);
    EXPECT_EQ(copy->special(), llama());
    EXPECT_EQ(copy->payload(), payload);
    EXPECT_EQ(encode(*copy, "1 2"), encode(*tokenizer, "1 2"));
    for (std::size_t size = 0; size < payload.size(); ++size) {
      ASSERT_THROW(tokenizer_from_payload(tokenizer->name(), payload.substr(0, size)), DataError) << size;
    }
    tokenizer->set_special({});
    EXPECT_EQ(tokenizer->payload(), plain);
  }
}

TEST(SpecialTokens, ThatAreDamagedOrOutsideTheVocabularyAreRefused) {
  for (const char* line :
       {"bos x", "bos", "prefix A", "stops 1 -1", "added 1 111", "added 1 00002", "file a \\x0", "pad 99999999999"}) {
    const std::string payload = std::string("trireme special tokens 1\n1\n") + line + "\ntrireme bytes 1\n";
    EXPECT_THROW(tokenizer_from_payload("bytes", payload), DataError) << line;
  }
  const auto bytes = make_byte_tokenizer();
  EXPECT_THAT(message_of<DataError>([&] { bytes->set_special({.bos = 257}); }),
              HasSubstr("the special token 257 is not in the vocabulary of 257 ids"));
}

TEST(SpecialTokens, StandBeforePromptsAndEndContinuations) {
  const auto bytes = make_byte_tokenizer();
  EXPECT_THAT(bytes->encode_prompt("a"), ElementsAre('a'));
  EXPECT_THAT(bytes->stops(), ElementsAre(256));
  EXPECT_EQ(bytes->special().beginning(), std::nullopt);
  bytes->set_special(llama());
  EXPECT_THAT(bytes->encode_prompt("a"), ElementsAre(1, 'a'));
  EXPECT_THAT(encode(*bytes, "a"), ElementsAre('a'));
  EXPECT_THAT(bytes->stops(), ElementsAre(2, 7));
  EXPECT_EQ(bytes->special().beginning(), 1);
  bytes->set_special({.prefix = {5, 6}});
  EXPECT_THAT(bytes->encode_prompt(""), ElementsAre(5, 6));
  EXPECT_EQ(bytes->special().beginning(), 6);
}

TEST(SpecialTokenParser, FindsTokensByNameAndCutsBesideThem) {
  BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}});
  for (const char* name : {"<s>", "<s> -", "<t>"}) {
    vocabulary.special.push_back(static_cast<std::int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.emplace_back(name);
  }
  const auto tokenizer = make_huggingface_tokenizer(vocabulary);
  tokenizer->set_special({.added = {{260, {.special = true, .single_word = true, .rstrip = true}}}});
  const SpecialTokenParser parser(*tokenizer);
  const auto ids_of = [&](std::string_view text, bool begins = true) {
    std::vector<std::int32_t> ids;
    parser.encode(text, begins, ids);
    return ids;
  };
  EXPECT_THAT(ids_of("ab<s>ab"), ElementsAre(256, 258, 256));
  EXPECT_THAT(ids_of("<s> -<t> \nb"), ElementsAre(259, 260, 'b')) << "the longest; white space belongs to it";
  EXPECT_EQ(ids_of("a<t>").size(), 4u) << "not a single word";
  EXPECT_EQ(tokenizer->encode_chat("<s>ab"), ids_of("<s>ab"));
  const std::string text = "ab <s> - <t>  ab ab<s> ab \n<t>";
  std::int64_t cuts = 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (!parser.can_cut(text, at)) continue;
    ++cuts;
    std::vector<std::int32_t> joined = ids_of(text.substr(0, at));
    std::ranges::copy(ids_of(std::string_view(text).substr(at), false), std::back_inserter(joined));
    EXPECT_EQ(joined, ids_of(text)) << at;
  }
  EXPECT_EQ(cuts, 3);
}

TEST(CompareTokenizers, TellsSpecialTokensFromIds) {
  const auto compare = [](const Tokenizer& one, const Tokenizer& other) {
    return compare_tokenizers(one.name(), one.payload(), other.name(), other.payload());
  };
  BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}});
  vocabulary.tokens.emplace_back("<s>");
  const auto gpt2 = make_gpt2_tokenizer(vocabulary);
  EXPECT_TRUE(compare(*gpt2, *gpt2).same_ids);
  vocabulary.special = {257, 258};
  vocabulary.end_of_document = 258;
  const auto of_json = make_huggingface_tokenizer(vocabulary);
  of_json->set_special(llama());
  const TokenizerComparison differing = compare(*gpt2, *of_json);
  EXPECT_TRUE(differing.same_ids);
  EXPECT_THAT(differing.difference, HasSubstr("end of document 257 and 258, bos none and 1, eos none and 2"));
  EXPECT_THAT(differing.difference, HasSubstr("ends of generation none and 2 7, before texts none and 1"));

  vocabulary.added = {257};  // found in texts
  EXPECT_FALSE(compare(*of_json, *make_huggingface_tokenizer(vocabulary)).same_ids);
  vocabulary.added = {};
  vocabulary.pattern = WordPattern::llama3;
  EXPECT_FALSE(compare(*of_json, *make_huggingface_tokenizer(vocabulary)).same_ids);
  EXPECT_FALSE(compare(*gpt2, *make_gpt2_tokenizer(vocabulary_of({{"a", "c"}}))).same_ids);
  EXPECT_TRUE(compare(*make_null_tokenizer(9, 8), *make_null_tokenizer(9, 7)).same_ids);
  EXPECT_FALSE(compare(*make_null_tokenizer(9, 8), *make_null_tokenizer(10, 8)).same_ids);
  EXPECT_FALSE(compare(*make_byte_tokenizer(), *make_null_tokenizer(257, 256)).same_ids);
}

}  // namespace
}  // namespace trireme::data
