#include "io/tokenizer/huggingface_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "io/tokenizer/huggingface_form.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/error.hpp"
#include "src/data/tokenizer/split_words.hpp"
#include "tests/support/gpt2_files.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// All bytes, three merges, <|endoftext|> as id 259.
json small_file() {
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[spelling_of(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary["th"] = 256;
  vocabulary["the"] = 257;
  vocabulary["\u0120the"] = 258;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {{{"id", 259}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", {{"type", "TemplateProcessing"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"t h", "th e", "\u0120 the"}}}}};
}

void set_pattern(json& file, const std::string& regex) {
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

std::unique_ptr<data::Tokenizer> tokenizer_of(const json& file, const std::string& end = "") {
  return data::make_huggingface_tokenizer(parse_huggingface_file(file.dump(), "tokenizer.json", {end}));
}

std::vector<std::int32_t> encode(const data::Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  std::string bytes;
  tokenizer.decode(ids, bytes);
  EXPECT_EQ(bytes, text);
  return ids;
}

TEST(HuggingFaceFile, GivesTokensOfMergesWrittenInEitherWay) {
  json file = small_file();
  const auto texts = tokenizer_of(file);
  EXPECT_EQ(texts->name(), "huggingface");
  EXPECT_EQ(texts->vocabulary_size(), 260);
  EXPECT_EQ(texts->end_of_document(), 259);
  EXPECT_THAT(encode(*texts, "the the12"), ElementsAre(257, 258, '1', '2'));
  file["model"]["merges"] = json::parse(R"([["t", "h"], ["th", "e"], ["\u0120", "the"]])");
  EXPECT_EQ(tokenizer_of(file)->digest(), texts->digest());
}

TEST(HuggingFaceFile, RecognisesThePatternsOfLlama3AndQwen2) {
  json file = small_file();
  file["model"]["vocab"]["12"] = 260;
  file["model"]["vocab"]["123"] = 261;
  file["model"]["vocab"]["1234"] = 262;
  file["model"]["vocab"][".\u010A"] = 263;
  for (const char* merge : {"1 2", "12 3", "123 4", ". \u010A"}) file["model"]["merges"].push_back(merge);
  set_pattern(file, llama3_pattern);
  const auto llama3 = tokenizer_of(file);
  EXPECT_THAT(encode(*llama3, "1234.\nthe"), ElementsAre(261, '4', 263, 257));
  EXPECT_FALSE(llama3->can_cut("the.\nthe", 4));
  EXPECT_TRUE(llama3->can_cut("the\nthe", 3));
  EXPECT_TRUE(llama3->can_cut("the. the", 4));

  std::string qwen2 = llama3_pattern;
  qwen2.replace(qwen2.find("{1,3}"), 5, "");
  set_pattern(file, qwen2);
  const auto tokenizer = tokenizer_of(file);
  EXPECT_THAT(encode(*tokenizer, "1234.\nthe"), ElementsAre('1', '2', '3', '4', 263, 257));
  const auto copy = data::tokenizer_from_payload("huggingface", tokenizer->payload());
  EXPECT_EQ(copy->payload(), tokenizer->payload());
  EXPECT_THAT(encode(*copy, "12"), ElementsAre('1', '2'));
}

TEST(HuggingFaceFile, FindsAddedTokensButNotSpecialOnesInText) {
  json file = small_file();
  for (const auto& [id, content, special] :
       {std::tuple(260, "<tool>", false), {261, "<to", false}, {262, "<|other|>", true}}) {
    file["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", special}});
  }
  const auto tokenizer = tokenizer_of(file);
  EXPECT_THAT(encode(*tokenizer, "a<tool>the<tot<"), ElementsAre('a', 260, 257, 261, 't', '<'));
  EXPECT_EQ(encode(*tokenizer, "<|other|>").size(), 7u);
  EXPECT_EQ(encode(*tokenizer, "<|endoftext|>").size(), 13u);
  const auto copy = data::tokenizer_from_payload("huggingface", tokenizer->payload());
  EXPECT_THAT(encode(*copy, "<tool>"), ElementsAre(260));
  EXPECT_EQ(tokenizer_of(file, "<|other|>")->end_of_document(), 262);
  EXPECT_EQ(tokenizer_of(file, "<to")->end_of_document(), 261);
}

TEST(HuggingFaceFile, FindsAddedTokensWithTheirWhiteSpaceBeforeOrAfterNormalisation) {
  json file = small_file();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}};
  const auto add = [&](int id, const char* content, const char* property) {
    file["added_tokens"].push_back({{"id", id}, {"content", content}, {property, true}});
  };
  add(260, "<L>", "lstrip");
  add(261, "<R>", "rstrip");
  add(262, "The x", "normalized");
  const auto tokenizer = tokenizer_of(file);
  std::vector<std::int32_t> ids;
  tokenizer->encode("a \u3000<L> b<R>\n\u00A0THE Xc<l>", ids);
  EXPECT_THAT(ids, ElementsAre('a', 260, ' ', 'b', 261, 262, 'c', '<', 'l', '>'));
  EXPECT_FALSE(tokenizer->can_cut("a<R> b", 4));
  EXPECT_FALSE(tokenizer->can_cut("the x", 3));
  EXPECT_EQ(data::tokenizer_from_payload("huggingface", tokenizer->payload())->payload(), tokenizer->payload());
}

// The words in fixtures/tokenizers/splits.json come from Hugging Face's tokenizers 0.23.
TEST(HuggingFaceFile, CutsTheWordsOfTokenizersByAnyNormalizerAndSplits) {
  const json fixture = json::parse(test::read_file(TRIREME_FIXTURES "/tokenizers/splits.json"));
  for (const json& form : fixture["forms"]) {
    json file = small_file();
    for (const char* part : {"normalizer", "pre_tokenizer"}) file[part] = form[part];
    const data::BpeVocabulary vocabulary = parse_huggingface_file(file.dump(), "tokenizer.json", {});
    const data::Normalizer normalizer(vocabulary.normalizer);
    const data::SplitWords splits(
        vocabulary.splits.empty()
            ? std::vector<data::SplitStep>{{.regex = std::string(data::regex_of(vocabulary.pattern))}}
            : vocabulary.splits);
    std::int64_t cuts = 0;
    for (std::size_t i = 0; i < fixture["texts"].size(); ++i) {
      std::string space;
      const auto original = fixture["texts"][i].get<std::string>();
      const std::string text(normalizer.apply(original, data::TextStart::text, space));
      const auto words_of = [&](std::string_view part) {
        std::vector<std::string> words;
        for (const auto& [begin, end] : splits.words(part))
          words.push_back(spelling_of(part.substr(begin, end - begin)));
        return words;
      };
      const std::vector<std::string> words = words_of(text);
      EXPECT_EQ(words, form["words"][i].get<std::vector<std::string>>()) << form["name"] << ": " << original;
      for (std::size_t at = 1; at < text.size(); ++at) {
        if (!splits.can_cut(text, at)) continue;
        ++cuts;
        std::vector<std::string> joined = words_of(std::string_view(text).substr(0, at));
        std::ranges::move(words_of(std::string_view(text).substr(at)), std::back_inserter(joined));
        EXPECT_EQ(joined, words) << form["name"] << " at " << at << ": " << text;
      }
    }
    const bool has_rule =
        std::set<json>{"deepseek", "starcoder", "falcon", "bloom", "neox", "qwen3.5"}.contains(form["name"]);
    EXPECT_EQ(cuts > 20, has_rule) << form["name"] << ": " << cuts;

    const auto tokenizer = tokenizer_of(file);
    const auto copy = data::tokenizer_from_payload("huggingface", tokenizer->payload());
    EXPECT_EQ(copy->payload(), tokenizer->payload()) << form["name"];
    nlohmann::ordered_json exported = small_file();
    write_huggingface_form(vocabulary, exported);
    EXPECT_EQ(tokenizer_of(json(exported))->ids_digest(), tokenizer->ids_digest()) << form["name"];
  }
}

TEST(HuggingFaceFile, FindsSingleWordsOnlyBesideOtherCharactersThanThoseOfWords) {
  json file = small_file();
  file["added_tokens"].push_back({{"id", 260}, {"content", "ten"}, {"single_word", true}});
  const auto tokenizer = tokenizer_of(file);
  for (const char* text : {"oxten", "tenx", "ten_", "\u24d0ten", "ten\u0301", "1ten", "ten\u0663"}) {
    EXPECT_THAT(encode(*tokenizer, text), testing::Not(testing::Contains(260))) << text;
  }
  EXPECT_THAT(encode(*tokenizer, "ten-ten\u2460"), ElementsAre(260, '-', 260, 0xE2, 0x91, 0xA0));
  const auto copy = data::tokenizer_from_payload("huggingface", tokenizer->payload());
  EXPECT_THAT(encode(*copy, "tent"), testing::Not(testing::Contains(260)));
}

TEST(HuggingFaceFile, GivesUpASearchThatBacktracksWithoutEnd) {
  json file = small_file();
  set_pattern(file, "(a|aa)+[cd]");
  const auto tokenizer = tokenizer_of(file);
  std::vector<std::int32_t> ids;
  EXPECT_THAT([&] { tokenizer->encode(std::string(60, 'a') + "b", ids); },
              ThrowsMessage<DataError>(HasSubstr("bytes failed: ")));
}

/// Bytes 0 to 255, U+2581 and letters; </s> is 263.
json small_characters() {
  json vocabulary = json::object();
  for (std::size_t byte = 0; byte < 256; ++byte) vocabulary[data::byte_token(byte)] = byte;
  int id = 256;
  for (const char* token : {"\u2581", "t", "h", "e", "th", "the", "\u2581the"}) vocabulary[token] = id++;
  const json mark{{"String", "\u2581"}};
  return {{"added_tokens", {{{"id", 263}, {"content", "</s>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", mark}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"vocab", vocabulary},
            {"merges", {"t h", "th e", "\u2581 the"}}}}};
}

TEST(HuggingFaceFile, ReadsABpeOfCharactersWithEveryMetaspace) {
  json file = small_characters();
  const auto ids_with = [&](const json& metaspace) {
    file["pre_tokenizer"] = metaspace;
    std::vector<std::int32_t> ids;
    tokenizer_of(file)->encode("the\n the", ids);
    return ids;
  };
  const auto metaspace = [](const char* key, const json& value) {
    return json{{"type", "Metaspace"}, {"replacement", "\u2581"}, {key, value}};
  };
  for (const char* scheme : {"first", "always"}) {
    EXPECT_THAT(ids_with(metaspace("prepend_scheme", scheme)), ElementsAre(262, '\n', 262)) << scheme;
  }
  EXPECT_THAT(ids_with(metaspace("prepend_scheme", "never")), ElementsAre(261, '\n', 262));
  EXPECT_THAT(ids_with(metaspace("add_prefix_space", false)), ElementsAre(261, '\n', 262));
  EXPECT_THAT(ids_with(metaspace("add_prefix_space", true)), ElementsAre(262, '\n', 262));
  EXPECT_THAT(ids_with(nullptr), ElementsAre(261, '\n', ' ', 261)) << "a space has no token, only its byte";
}

TEST(HuggingFaceFile, RefusesByNameWhatABpeOfCharactersDoesNotSupport) {
  const auto expect_error = [](const std::string& pointer, const json& value, const std::string& words) {
    json file = small_characters();
    file[json::json_pointer(pointer)] = value;
    EXPECT_THAT([&] { tokenizer_of(file); }, ThrowsMessage<DataError>(HasSubstr(words))) << pointer;
  };
  expect_error("/decoder", nullptr, "the decoder is null");
  expect_error("/decoder/decoders/3/start", 2, "the decoder is {");
  expect_error("/decoder/decoders/1/type", "ByteLevel", "ByteFallback, Fuse");
  expect_error("/pre_tokenizer", {{"type", "Digits"}}, "the pre-tokenizer is {\"type\":\"Digits\"}");
  expect_error("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}}, "one Metaspace of U+2581");
  expect_error("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", " "}}}}, "that the normalizer replaces");
  const json scheme{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "last"}};
  expect_error("/pre_tokenizer", scheme, "'prepend_scheme' is \"last\"");
  expect_error("/model/merges/0", "th", "merge 1 is \"th\", not two tokens");
}

TEST(HuggingFaceFile, TakesWholeWordsBeforeMergesIfDeclared) {
  json file = small_file();
  file["model"]["vocab"]["hat"] = 260;
  file["model"]["vocab"]["abcdefghijklmnopqrstuvwxyz"] = 261;
  EXPECT_THAT(encode(*tokenizer_of(file), "hat"), ElementsAre('h', 'a', 't'));
  file["model"]["ignore_merges"] = true;
  const auto tokenizer = tokenizer_of(file);
  EXPECT_THAT(encode(*tokenizer, "hat"), ElementsAre(260));
  EXPECT_THAT(encode(*tokenizer, "abcdefghijklmnopqrstuvwxyz"), ElementsAre(261));
  EXPECT_EQ(encode(*tokenizer, "abcdefghijklmnopqrstuvwxy").size(), 25u);
}

TEST(HuggingFaceFile, ComposesTextIfDeclared) {
  json file = small_file();
  file["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = tokenizer_of(file);
  std::vector<std::int32_t> ids;
  tokenizer->encode("e\u0301\xFF", ids);
  EXPECT_THAT(ids, ElementsAre(0xC3, 0xA9, 0xFF));
}

TEST(HuggingFaceFile, IsRefusedByNameIfItNeedsAnUnknownFeature) {
  const auto expect_error = [](const std::string& pointer, const json& value, const std::string& words) {
    json file = small_file();
    file[json::json_pointer(pointer)] = value;
    EXPECT_THAT([&] { tokenizer_of(file); }, ThrowsMessage<DataError>(HasSubstr(words))) << pointer;
  };
  expect_error("/model/type", "WordLevel", "the model is \"WordLevel\"; this program takes BPE and Unigram");
  expect_error("/model", 1, "has no 'model'");
  expect_error("/model/byte_fallback", true,
               "with 'byte_fallback' or a unigram model this program supports none, one Metaspace");
  expect_error("/model/byte_fallback", 1, "neither true nor false");
  expect_error("/model/dropout", 0.1, "'dropout' is 0.1");
  expect_error("/model/end_of_word_suffix", "</w>", "prefix or suffix");
  expect_error("/truncation", json::object(), "'truncation' is not null");
  expect_error("/normalizer", {{"type", "Nmt"}}, "the normalizer is {\"type\":\"Nmt\"}");
  expect_error("/normalizer", {{"type", "Precompiled"}}, "'precompiled_charsmap' of {\"type\":\"Precompiled\"} is not");
  expect_error("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}},
               "'(a' is invalid: end pattern with unmatched parenthesis");
  expect_error("/normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}}, "an empty text");
  expect_error("/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}}, "'content' of {");
  expect_error("/pre_tokenizer", nullptr, "the pre-tokenizer is null");
  expect_error("/pre_tokenizer/type", "Whitespace", "the pre-tokenizer is");
  expect_error("/pre_tokenizer/add_prefix_space", true, "'add_prefix_space' is on");
  expect_error("/pre_tokenizer/use_regex", false, "into no words");
  expect_error("/added_tokens", "none", "'added_tokens' is");
  expect_error("/added_tokens", json::array(), "none of <|endoftext|>");
  expect_error("/added_tokens/0/id", -1, "token '<|endoftext|>' has the id -1");
  expect_error("/added_tokens/0/id", 1000, "there is no token with the id 259, though ids go up to 1000");
  expect_error("/added_tokens/0/id", 5, "both have the id 5");
  expect_error("/added_tokens/1", {{"id", 260}, {"content", std::string(1025, 'x')}}, "has 1025 bytes, not 1 to 1024");
  expect_error("/model/vocab/a b", 260, "token 'a b'");
  expect_error("/model/merges/0", "th", "merge 1 is \"th\"");
  expect_error("/model/merges/0", 7, "merge 1 is 7");
  expect_error("/model/merges/0", "q x", "'qx' is not in the vocabulary");
  expect_error("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array()}}, "it has no ByteLevel");
  const json split{{"type", "Split"}, {"pattern", {{"Regex", "[a"}}}, {"behavior", "Isolated"}};
  const json byte_level = small_file()["pre_tokenizer"];
  expect_error("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}, "'[a' is invalid");
  expect_error("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {byte_level, byte_level}}}, "two ByteLevel");
  EXPECT_THAT([&] { tokenizer_of(small_file(), "</s>"); },
              ThrowsMessage<DataError>(HasSubstr("no added token '</s>'")));
  EXPECT_THAT([] { parse_huggingface_file("{", "t.json", {}); },
              ThrowsMessage<DataError>(HasSubstr("t.json: not JSON: parse error at line 1, column 2: ")));
  EXPECT_THAT([] { parse_huggingface_file(std::string(100000, '['), "t.json", {}); },
              ThrowsMessage<DataError>(HasSubstr("nests deeper than 16 levels")));
}

}  // namespace
}  // namespace trireme::io
