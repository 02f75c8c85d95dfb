// BPE of characters that falls back to bytes, the form of Llama 2. Ids of transformers are in tests/exchange.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "src/base/error.hpp"
#include "src/base/philox.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/words.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

using test::decode;
using test::encode;
using ::testing::HasSubstr;
using Kind = NormalizerStep::Kind;
using Prefix = Metaspace::Prefix;

std::vector<std::pair<std::string, std::string>> merges() {
  return {{"t", "h"},        {"th", "e"},
          {"\u2581", "the"}, {"\u2581", "\u2581"},
          {"a", "b"},        {"ab", "ab"},
          {"a\u2581", ""},   {"e", "."},
          {"<", "/"},        {"s", ">"},
          {"</", "s>"},      {"\u2581the", "y"},
          {"h", "e"},        {"\u2581\u2581", "\u2581\u2581"}};
}

/// Ids by the definition: the best merge of all, the leftmost of equals, until none applies.
std::vector<std::int32_t> simple_ids(const BpeVocabulary& vocabulary, std::string_view marked) {
  const auto id_of = [&](const std::string& token) {
    return std::ranges::find(vocabulary.tokens, token) - vocabulary.tokens.begin();
  };
  std::vector<std::string> tokens;
  for_each_character(marked, [&](Utf8Character c, std::string_view bytes) {
    const std::string token(bytes);
    if (c.size_bytes > 0 && id_of(token) < std::ssize(vocabulary.tokens)) {
      tokens.push_back(token);
    } else {
      for (const char byte : bytes) tokens.push_back(byte_token(static_cast<unsigned char>(byte)));
    }
  });
  for (;;) {
    const std::size_t best = [&] {
      for (const auto& merge : vocabulary.merges) {
        if (merge == std::pair<std::string, std::string>("</", "s>")) continue;  // makes a special token
        for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
          if (tokens[i] == merge.first && tokens[i + 1] == merge.second) return i;
        }
      }
      return tokens.size();
    }();
    if (best == tokens.size()) break;
    tokens[best] += tokens[best + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& token : tokens) ids.push_back(static_cast<std::int32_t>(id_of(token)));
  return ids;
}

std::string random_text(std::uint32_t seed, std::uint32_t parts) {
  const std::vector<std::string> alphabet = {"the", "they", " ",    " ",  "  ",     "\u2581", "ab",      "a",   "b",
                                             ".",   "\n",   "</s>", "\t", "\u6f22", "\xFF",   "e\u0301", "<x>", "H"};
  std::string text;
  for (std::uint32_t i = 0; i < parts; ++i) text += alphabet[philox4x32(seed, {i})[0] % alphabet.size()];
  return text;
}

TEST(CharacterBpe, GivesTheIdsOfItsDefinitionForAnyBytes) {
  const BpeVocabulary vocabulary = test::characters_of(merges());
  const auto tokenizer = make_huggingface_tokenizer(vocabulary);
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const std::string text = random_text(seed, 1 + seed % 40);
    EXPECT_EQ(encode(*tokenizer, text), simple_ids(vocabulary, "\u2581" + replaced(text, " ", "\u2581"))) << text;
  }
  // Longer than a word for the linear search.
  const std::string run(300, ' ');
  EXPECT_EQ(encode(*tokenizer, run), simple_ids(vocabulary, replaced(run + " ", " ", "\u2581")));
  EXPECT_EQ(encode(*tokenizer, ""), std::vector<std::int32_t>{});
}

TEST(CharacterBpe, ReturnsTheTextExceptThatMarksBecomeSpaces) {
  const auto tokenizer = make_huggingface_tokenizer(test::characters_of(merges()));
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const std::string text = random_text(seed, 30);
    EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, text)), replaced(text, "\u2581", " ")) << text;
  }
  // After other text nothing is left out.
  const std::vector<std::int32_t> ids = encode(*tokenizer, "the");
  std::string text;
  tokenizer->decode_continuation(ids, text);
  EXPECT_EQ(text, " the");
  std::vector<std::int32_t> continued;
  tokenizer->encode_continuation(" the", continued);
  EXPECT_EQ(continued, ids);
  EXPECT_EQ(decode(*tokenizer, {2, 3 + 0xC3, 3 + 0xA9}), "\u00e9");
}

/// Forms that differ in what they put before texts, in words and in added tokens, which follow the vocabulary's.
std::vector<BpeVocabulary> forms() {
  std::vector<BpeVocabulary> forms;
  for (const bool added : {false, true}) {
    BpeVocabulary plain = test::characters_of(merges());
    if (added) {
      for (const char* token : {"<x>", "ab the", "\n\n"}) {
        plain.added.push_back(static_cast<std::int32_t>(plain.tokens.size()));
        plain.tokens.emplace_back(token);
      }
      plain.added_properties[plain.added[0]] = {.lstrip = true, .rstrip = true};
      plain.added_properties[plain.added[1]] = {.normalized = true};
    }
    forms.push_back(plain);
    for (const Prefix prefix : {Prefix::never, Prefix::first, Prefix::always}) {
      for (const bool split : {false, true}) {
        for (const bool whole_words : {false, true}) {
          BpeVocabulary form = plain;
          form.normalizer.clear();
          form.whole_words = whole_words;
          form.characters->metaspace = {prefix, split};
          forms.push_back(std::move(form));
        }
      }
    }
    plain.normalizer.insert(plain.normalizer.begin(), {{Kind::nfkc}, {Kind::lower_case}});
    forms.push_back(std::move(plain));
  }
  return forms;
}

TEST(CharacterBpe, GivesTheSameIdsWhereverItAllowsACut) {
  std::int64_t cuts = 0;
  for (const BpeVocabulary& form : forms()) {
    const auto tokenizer = make_huggingface_tokenizer(form);
    for (std::uint32_t seed = 0; seed < 25; ++seed) {
      const std::string text = random_text(seed, 40);
      const std::vector<std::int32_t> ids = encode(*tokenizer, text);
      for (std::size_t at = 1; at < text.size(); ++at) {
        if (!tokenizer->can_cut(text, at)) continue;
        std::vector<std::int32_t> joined = encode(*tokenizer, text.substr(0, at));
        tokenizer->encode_continuation(std::string_view(text).substr(at), joined);
        ASSERT_EQ(joined, ids) << "before byte " << at << " of: " << text;
        ++cuts;
      }
    }
  }
  EXPECT_GT(cuts, 1000);
}

TEST(CharacterBpe, ComesBackFromItsPayloadInEveryForm) {
  std::vector<std::string> digests;
  for (const BpeVocabulary& form : forms()) {
    const auto tokenizer = make_huggingface_tokenizer(form);
    const auto copy = tokenizer_from_payload("huggingface", tokenizer->payload());
    EXPECT_EQ(copy->payload(), tokenizer->payload());
    const std::string text = random_text(7, 60);
    EXPECT_EQ(encode(*copy, text), encode(*tokenizer, text));
    EXPECT_EQ(decode(*copy, encode(*copy, text)), decode(*tokenizer, encode(*tokenizer, text)));
    digests.push_back(tokenizer->ids_digest());
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end()) << "all forms differ";
}

TEST(CharacterBpe, FindsATextThatIsATokenOnlyIfMergesAreIgnored) {
  auto list = merges();
  list.emplace_back("\u2581unreachable", "");
  BpeVocabulary vocabulary = test::characters_of(std::move(list));
  const auto id = static_cast<std::int32_t>(vocabulary.tokens.size()) - 1;
  EXPECT_EQ(encode(*make_huggingface_tokenizer(vocabulary), "unreachable").size(), 11u);
  vocabulary.whole_words = true;
  EXPECT_EQ(encode(*make_huggingface_tokenizer(vocabulary), "unreachable"), std::vector{id});
  EXPECT_EQ(encode(*make_huggingface_tokenizer(vocabulary), "unreachable ").size(), 12u);
  vocabulary.normalizer.clear();
  vocabulary.characters->metaspace = Metaspace{};
  EXPECT_EQ(encode(*make_huggingface_tokenizer(vocabulary), "unreachable ")[0], id);
}

TEST(CharacterBpe, NamesWhatItsVocabularyLacks) {
  const auto error_after = [](const std::function<void(BpeVocabulary&)>& change) {
    BpeVocabulary vocabulary = test::characters_of(merges());
    change(vocabulary);
    return test::message_of<DataError>([&] { make_huggingface_tokenizer(vocabulary); });
  };
  EXPECT_THAT(error_after([](BpeVocabulary& v) { v.tokens[3] = "other"; }),
              HasSubstr("no token for the single byte 0"));
  EXPECT_THAT(error_after([](BpeVocabulary& v) { v.merges.emplace_back("<0x0A>", "a"); }),
              HasSubstr("has or makes the token '<0x0A>' of a byte"));
  EXPECT_THAT(error_after([](BpeVocabulary& v) {
                v.normalizer.push_back({Kind::replace, "a", std::string(65, 'b')});
              }),
              HasSubstr("more than 64 times longer"));
  const std::string payload = make_huggingface_tokenizer(test::characters_of(merges()))->payload();
  for (const auto& [from, to] :
       {std::pair("2 0 1\n", "2 0 2\n"), {"2 0 1\n", "99 0 1\n"}, {"0 2 1 1\n", "0 3 1 1\n"}}) {
    const std::size_t at = payload.rfind(from);
    ASSERT_NE(at, payload.npos) << from;
    std::string damaged = payload;
    damaged.replace(at, std::string_view(from).size(), to);
    EXPECT_THROW(tokenizer_from_payload("huggingface", damaged), DataError) << to;
  }
}

TEST(Normalizer, ChangesTextsOfABytewiseBpeToo) {
  BpeVocabulary vocabulary = test::vocabulary_of({{"t", "h"}, {"th", "e"}});
  vocabulary.normalizer = {{Kind::nfkc}, {Kind::lower_case}, {Kind::replace, "x", " the"}};
  const auto tokenizer = make_huggingface_tokenizer(vocabulary);
  EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, "\uFF34\u212B \u0130x\xFF")), "t\u00e5 i\u0307 the\xFF");
  const std::string text = "The caf\u00e9 x X\nTHE\u00A0x";
  const std::vector<std::int32_t> ids = encode(*tokenizer, text);
  std::int64_t cuts = 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (!tokenizer->can_cut(text, at)) continue;
    std::vector<std::int32_t> joined = encode(*tokenizer, text.substr(0, at));
    tokenizer->encode_continuation(std::string_view(text).substr(at), joined);
    EXPECT_EQ(joined, ids) << at;
    ++cuts;
  }
  EXPECT_GT(cuts, 2);
}

}  // namespace
}  // namespace trireme::data
