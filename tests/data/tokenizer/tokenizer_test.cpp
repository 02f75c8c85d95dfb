#include "src/data/tokenizer/tokenizer.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/timer.hpp"
#include "src/base/utf8.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/bpe_trainer.hpp"
#include "src/data/tokenizer/byte_pair_encoder.hpp"
#include "src/data/tokenizer/word_cache.hpp"
#include "src/data/tokenizer/word_splitter.hpp"
#include "tests/support/gpt2_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::data {
namespace {

using test::decode;
using test::encode;
using test::message_of;
using test::vocabulary_of;
using testing::ElementsAre;
using testing::HasSubstr;

const WordSplitter& gpt2_splitter() {
  static const WordSplitter splitter(WordPattern::gpt2);
  return splitter;
}

std::vector<std::string> words_of(const std::string& text, const WordSplitter& splitter = gpt2_splitter()) {
  std::vector<std::string> result;
  const char* const end = text.data() + text.size();
  WordBatch batch;
  for (const char* at = text.data(); at != end; batch.clear()) {
    at = splitter.cut(at, end, batch);
    for (const Word word : batch.words()) result.emplace_back(word.text());
  }
  return result;
}

/// The textbook algorithm: merges all occurrences of the best pair, from the left, until none is left.
std::vector<std::string> merge_naively(const BpeVocabulary& vocabulary, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    auto best = vocabulary.merges.end();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      best = std::min(
          best, std::find(vocabulary.merges.begin(), vocabulary.merges.end(), std::pair(symbols[i], symbols[i + 1])));
    }
    if (best == vocabulary.merges.end()) return symbols;
    std::vector<std::string> merged;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (i + 1 < symbols.size() && symbols[i] == best->first && symbols[i + 1] == best->second) {
        merged.push_back(symbols[i] + symbols[i + 1]);
        ++i;
      } else {
        merged.push_back(symbols[i]);
      }
    }
    symbols = merged;
  }
}

TEST(Utf8, AcceptsExactlyWhatUnicodeDefines) {
  EXPECT_EQ(find_invalid_utf8("a\u00e9\u20ac\U0010FFFF"), 10u);
  EXPECT_EQ(find_invalid_utf8("ab\xC0\x80"), 2u);        // overlong
  EXPECT_EQ(find_invalid_utf8("ab\xE0\x9F\xBF"), 2u);    // overlong
  EXPECT_EQ(find_invalid_utf8("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1u);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\u20ac\xE2\x82"), 3u);    // cut off
  EXPECT_EQ(find_invalid_utf8("a\x80"), 1u);             // continuation alone
  EXPECT_EQ(find_invalid_utf8("\xFF"), 0u);
}

TEST(WordSplitter, TakesBytesThatAreNotUtf8ForCharactersOfTheThirdClass) {
  EXPECT_THAT(words_of("ab\xFF\xFE"
                       "cd \x80!"),
              ElementsAre("ab", "\xFF\xFE", "cd", " \x80!"));
  EXPECT_THAT(words_of("\xE2\x82"), ElementsAre("\xE2\x82"));
}

std::vector<std::string> words_one_by_one(const std::string& text, const WordSplitter& splitter = gpt2_splitter()) {
  std::vector<std::string> words;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end; at += words.back().size()) {
    words.emplace_back(at, splitter.word_end(at, end));
  }
  return words;
}

TEST(WordSplitter, CutsTheSameWordsInBlocksAsOneByOne) {
  std::mt19937 random(3);
  for (int pattern = 0; pattern < word_pattern_count; ++pattern) {
    const WordSplitter splitter(static_cast<WordPattern>(pattern));
    for (int trial = 0; trial < 1000; ++trial) {
      const std::string text = test::random_text(random, random() % 400);
      ASSERT_EQ(words_of(text, splitter), words_one_by_one(text, splitter)) << "pattern " << pattern << ": " << text;
    }
  }
}

// All sequences of three bytes whose first begins a character of three, overlong ones and surrogates among them.
TEST(WordSplitter, CutsTheSameWordsInBlocksOfCharactersThatAreNotAscii) {
  std::mt19937 random(4);
  std::vector<std::string> characters;
  for (unsigned c = 0; c < 0x10000; ++c) {
    const auto byte = [&](unsigned high, unsigned shift) { return static_cast<char>(high | (c >> shift & 0x3F)); };
    characters.push_back({static_cast<char>(0xE0 | c >> 12), byte(0x80, 6), byte(0x80, 0)});
    if (c < 0x800) characters.push_back({static_cast<char>(0xC0 | c >> 6), byte(0x80, 0)});
  }
  for (const bool shuffles : {false, true}) {
    if (shuffles) std::shuffle(characters.begin(), characters.end(), random);
    std::string text;
    for (const std::string& character : characters) {
      if (random() % 8 == 0) text += " a\n."[random() % 4];
      text += character;
    }
    ASSERT_EQ(words_of(text), words_one_by_one(text));
  }
}

TEST(ByteTokenizer, GivesEveryByteItsValue) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocabulary_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_THAT(encode(*tokenizer, std::string_view("a\0\xFF", 3)), ElementsAre(97, 0, 255));
  EXPECT_EQ(decode(*tokenizer, {104, 105, 256, 255}), "hi\xFF");
  EXPECT_THAT(message_of<DataError>([&] { decode(*tokenizer, {257}); }), HasSubstr("257"));
  EXPECT_THAT(message_of<DataError>([&] { decode(*tokenizer, {-1}); }), HasSubstr("-1"));
}

TEST(Gpt2Tokenizer, MatchesTheReferenceAlgorithmOnWordsOfEveryLength) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 40; ++trial) {
    // Merges of random existing pieces, over an alphabet of three letters.
    std::vector<std::pair<std::string, std::string>> merges;
    std::vector<std::string> pieces = {"a", "b", "c"};
    while (merges.size() < 30) {
      const std::string left = pieces[random() % pieces.size()], right = pieces[random() % pieces.size()];
      if (std::find(pieces.begin(), pieces.end(), left + right) != pieces.end()) continue;
      merges.emplace_back(left, right);
      pieces.push_back(left + right);
    }
    const BpeVocabulary vocabulary = vocabulary_of(merges);
    const auto tokenizer = make_gpt2_tokenizer(vocabulary);
    for (const std::size_t size : {1u, 2u, 3u, 5u, 8u, 14u, 15u, 16u, 17u, 40u, 63u, 64u, 65u, 66u, 200u}) {
      std::string word;
      while (word.size() < size) word += "abc"[random() % 3];
      std::vector<std::string> symbols;
      for (const std::int32_t id : encode(*tokenizer, word)) {
        symbols.push_back(vocabulary.tokens[static_cast<std::size_t>(id)]);
      }
      ASSERT_EQ(symbols, merge_naively(vocabulary, word)) << word;
    }
  }
}

// More words than the cache has room for, longer ones among them, come back in another order.
TEST(Gpt2Tokenizer, GivesWordsFromTheCacheTheirIds) {
  const BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}, {"ab", "c"}, {" ", "a"}, {"abc", "abc"}});
  const auto tokenizer = make_gpt2_tokenizer(vocabulary);
  const BytePairEncoder encoder(vocabulary);
  std::mt19937 random(2);
  std::vector<std::string> words(100'000);
  for (std::string& word : words) {
    const std::size_t size = 2 + random() % (random() % 3 == 0 ? 60 : 16);
    for (word = " "; word.size() < size;) word += "abc"[random() % 3];
  }
  for (int pass = 0; pass < 2; ++pass) {
    std::string text;
    std::vector<std::int32_t> expected;
    for (const std::string& word : words) {
      text += word;
      const char* const end = word.data() + word.size();
      encoder.encode({word.data(), end}, end, expected);
    }
    ASSERT_EQ(encode(*tokenizer, text), expected);
    std::shuffle(words.begin(), words.end(), random);
  }
}

// A third and a fourth word of a line are kept in the line beside it. Ids of 16 bits and wider ones, few and many.
TEST(WordCache, KeepsNearlyAllWordsOfAThirdOfItsSize) {
  constexpr std::int32_t count = 180'000;
  std::string text;
  std::vector<std::size_t> ends = {0};
  for (std::int32_t i = 0; i < count; ++i) ends.push_back((text += fmt::format("word{}", i)).size());
  for (const std::int32_t vocabulary_size : {1 << 16, (1 << 16) + 1}) {
    const auto add_ids = [&](std::int32_t word, std::vector<std::int32_t>& ids) {
      for (std::int32_t i = 0; i <= word % 10; ++i) ids.push_back(vocabulary_size - 1 - (word + i) % vocabulary_size);
    };
    std::vector<std::int32_t> expected;
    for (std::int32_t i = 0; i < count; ++i) add_ids(i, expected);
    WordCache cache(static_cast<std::size_t>(vocabulary_size));
    int encoded = 0;
    for (int pass = 0; pass < 2; ++pass) {
      encoded = 0;
      std::vector<std::int32_t> ids;
      WordBatch batch;
      for (std::size_t i = 1; i < ends.size(); ++i) {
        batch.add(text.data() + ends[i - 1], text.data() + ends[i]);
        if (batch.has_room() && i + 1 < ends.size()) continue;
        cache.encode(batch.words(), text.data() + text.size(), ids, [&](Word word, std::vector<std::int32_t>& out) {
          add_ids(parse_number<std::int32_t>(word.text().substr(4)).value(), out);
          ++encoded;
        });
        batch.clear();
      }
      ASSERT_EQ(ids, expected);
    }
    EXPECT_LT(encoded, count / 20);
  }
}

// A word must not become a token that no merge makes, even if it spells it.
TEST(Gpt2Tokenizer, NeverEmitsATokenThatNoMergeProduces) {
  BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}, {"b", "c"}, {"a", "bc"}});
  const auto tokenizer = make_gpt2_tokenizer(vocabulary);
  EXPECT_THAT(encode(*tokenizer, "abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(encode(*tokenizer, "<|endoftext|>"), testing::Not(testing::Contains(tokenizer->end_of_document())));
}

TEST(SpecialTokens, AreFoundByTheirNamesTheLongestFirst) {
  const auto counts_in = [](const Tokenizer& tokenizer, std::string_view text) {
    SpellingCounts counts;
    SpecialTokenFinder(tokenizer).count(text, counts);
    return counts;
  };
  BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}});
  for (const char* special : {"<|im|>", "<|im|>x", "<|ab|>", "<s>"}) vocabulary.tokens.emplace_back(special);
  EXPECT_EQ(counts_in(*make_gpt2_tokenizer(vocabulary), "ab <|im|><|im|>x<|im<<s><|endoftext|> <|ba|>"),
            (SpellingCounts{{"<s>", 1}, {"<|endoftext|>", 1}, {"<|im|>", 1}, {"<|im|>x", 1}}));
  vocabulary.special = {static_cast<std::int32_t>(vocabulary.tokens.size()) - 1};
  EXPECT_EQ(counts_in(*make_huggingface_tokenizer(vocabulary), "<|im|><s>"), (SpellingCounts{{"<s>", 1}}));
  const auto wordpiece = make_wordpiece_tokenizer({{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}});
  EXPECT_EQ(counts_in(*wordpiece, "[CLS] a [SEP]b[SEP] [sep]"), (SpellingCounts{{"[CLS]", 1}, {"[SEP]", 2}}));
  EXPECT_EQ(counts_in(*make_byte_tokenizer(), "<|endoftext|> <s>"), (SpellingCounts{{"<|endoftext|>", 1}}));
}

TEST(Gpt2Tokenizer, DistinguishesAWordFromOneWithATrailingZeroByte) {
  const auto tokenizer = make_gpt2_tokenizer(vocabulary_of({{"!", std::string(1, '\0')}}));
  EXPECT_THAT(encode(*tokenizer, "!"), ElementsAre('!'));
  EXPECT_THAT(encode(*tokenizer, std::string_view("!\0", 2)), ElementsAre(256));
  EXPECT_THAT(encode(*tokenizer, std::string_view("!\0\0", 3)), ElementsAre(256, 0));
}

TEST(Gpt2Tokenizer, TakesLinearTimeForOneLongWord) {
  const auto tokenizer = make_gpt2_tokenizer(vocabulary_of({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  const Timer timer;
  EXPECT_EQ(encode(*tokenizer, std::string(1 << 20, 'a')).size(), 1u << 17);
  EXPECT_LT(timer.elapsed_s(), 10);  // quadratic time would take an hour
}

TEST(Gpt2Tokenizer, DecodesTheEndOfADocumentToNothingAndRefusesUnknownIds) {
  const auto tokenizer = make_gpt2_tokenizer(vocabulary_of({{"h", "i"}}));
  EXPECT_EQ(decode(*tokenizer, {256, tokenizer->end_of_document(), '!'}), "hi!");
  EXPECT_THAT(message_of<DataError>([&] { decode(*tokenizer, {258}); }),
              HasSubstr("258 is not in the vocabulary of 258 ids"));
  EXPECT_THAT(message_of<DataError>([&] { decode(*tokenizer, {-1}); }), HasSubstr("-1"));
}

TEST(Gpt2Tokenizer, NamesErrorsInAVocabulary) {
  const auto error_after = [](const auto& change) {
    BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}});
    change(vocabulary);
    return message_of<DataError>([&] { make_gpt2_tokenizer(vocabulary); });
  };
  const auto with_token = [&](std::size_t id, const char* token) {
    return error_after([&](BpeVocabulary& v) { v.tokens[id] = token; });
  };
  EXPECT_THAT(with_token(7, "ab"), HasSubstr("token 'ab' twice, as id 7 and id 256"));
  EXPECT_THAT(with_token(256, ""), HasSubstr("no token of id 256"));
  EXPECT_THAT(with_token(10, "longer"), HasSubstr("no token for the single byte 10"));

  const auto with_end = [&](std::int32_t id) { return error_after([&](BpeVocabulary& v) { v.end_of_document = id; }); };
  EXPECT_THAT(with_end(-1), HasSubstr("<|endoftext|>"));
  EXPECT_THAT(with_end(258), HasSubstr("<|endoftext|>"));
  EXPECT_THAT(with_end(256), HasSubstr("token 256 ('ab') is to end documents"));

  const auto with_merge = [&](const char* left, const char* right) {
    return error_after([&](BpeVocabulary& v) { v.merges.emplace_back(left, right); });
  };
  EXPECT_THAT(with_merge("a", "\n"), HasSubstr("merge 2 ('a' + '\\x0a'): 'a\\x0a' is not in the vocabulary"));
  EXPECT_THAT(with_merge("ab", "zz"), HasSubstr("'zz' is not in the vocabulary"));
  EXPECT_THAT(with_merge("a", "b"), HasSubstr("merge 2 ('a' + 'b') repeats merge 1"));

  EXPECT_THAT(error_after([](BpeVocabulary& v) {
                v = vocabulary_of({{"ab", "c"}});
                v.tokens.emplace_back("ab");
              }),
              HasSubstr("merge 1 ('ab' + 'c'): 'ab' is neither a byte nor made"));
  EXPECT_THAT(error_after([](BpeVocabulary& v) { v.special = {999}; }),
              HasSubstr("the added token 999 is not in the vocabulary"));
}

TEST(TokenizerPayload, MakesAnEqualTokenizer) {
  const auto original = make_gpt2_tokenizer(vocabulary_of({{"\\", "\n"}, {" ", "\xFF"}, {"a", "b"}, {"ab", "ab"}}));
  const auto copy = tokenizer_from_payload("gpt2", original->payload());
  EXPECT_EQ(copy->payload(), original->payload());
  EXPECT_EQ(copy->digest(), original->digest());
  const std::string text = "abab \xFF\\\n ab";
  EXPECT_EQ(encode(*copy, text), encode(*original, text));
  for (const char c : original->payload()) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));

  const auto bytes = tokenizer_from_payload("bytes", make_byte_tokenizer()->payload());
  EXPECT_EQ(bytes->name(), "bytes");
  EXPECT_NE(bytes->digest(), original->digest());
  const auto other = make_gpt2_tokenizer(vocabulary_of({{"a", "c"}}));
  EXPECT_NE(other->digest(), original->digest());
}

TEST(TokenizerPayload, IsRefusedIfDamaged) {
  const std::string payload = make_gpt2_tokenizer(vocabulary_of({{"a", "b"}}))->payload();
  for (std::size_t size = 0; size < payload.size(); ++size) {
    ASSERT_THROW(tokenizer_from_payload("gpt2", payload.substr(0, size)), DataError) << size;
  }
  const auto refuse = [](const std::string& name, const std::string& text) {
    return message_of<DataError>([&] { tokenizer_from_payload(name, text); });
  };
  EXPECT_THAT(refuse("gpt2", payload + "97 98\n"), HasSubstr("continues after its 261 lines"));
  EXPECT_THAT(refuse("gpt2", payload.substr(0, payload.size() - 6) + "97 9999\n"), HasSubstr("line 261 is '97 9999'"));
  EXPECT_THAT(refuse("gpt2", payload.substr(0, payload.size() - 6) + "97 -1\n"), HasSubstr("line 261"));
  EXPECT_THAT(refuse("bytes", payload), HasSubstr("damaged"));
  EXPECT_THAT(refuse("word2vec", payload), HasSubstr("unknown tokenizer 'word2vec'"));
}

TEST(NullTokenizer, EncodesAndDecodesNumbers) {
  const auto tokenizer = make_null_tokenizer(50'257, 50'256);
  EXPECT_THAT(encode(*tokenizer, " 12\n0  50256\t7"), ElementsAre(12, 0, 50'256, 7));
  EXPECT_EQ(decode(*tokenizer, {12, 0, 50'256, 7}), "12 0 7 ");
  for (const char* bad : {"50257", "-1", "1,2", "x", "99999999999999999999"}) {
    EXPECT_THROW(encode(*tokenizer, bad), DataError) << bad;
  }
  EXPECT_THROW(decode(*tokenizer, {50'257}), DataError);
}

TEST(NullTokenizer, IsRestoredFromItsOwnPayloadOnly) {
  const auto tokenizer = tokenizer_from_payload("null", make_null_tokenizer(300'000, 5)->payload());
  EXPECT_EQ(tokenizer->vocabulary_size(), 300'000);
  EXPECT_EQ(tokenizer->end_of_document(), 5);
  for (const char* bad :
       {"", "trireme ids 1\n", "trireme ids 1\n5 5\n", "trireme ids 1\n5 4\n ", "trireme ids 1\n05 4\n"}) {
    EXPECT_THROW(tokenizer_from_payload("null", bad), DataError) << bad;
  }
  EXPECT_THROW(make_null_tokenizer(0, 0), ConfigError);
  EXPECT_THROW(make_null_tokenizer(10, 10), ConfigError);
}

// The ids in fixtures/hugging_face_bpe.json come from Hugging Face's tokenizers 0.23.
nlohmann::json fixture() { return nlohmann::json::parse(test::read_file(TRIREME_FIXTURES "/hugging_face_bpe.json")); }

TEST(HuggingFace, EncodesAlikeWithAVocabularyTrainedHere) {
  const SplitWords gpt2(named_splits()[0].steps);
  WordCounts counts;
  for (int n = 0; n < 40; ++n) {
    counts.add_text(fmt::format("The ship's crew of {} rows past {} islands, and the captain's oars rise as one. We'll "
                                "rest, they said; we've rowed on\n",
                                n, 7 * n),
                    gpt2);
  }
  const auto tokenizer =
      make_gpt2_tokenizer(train_bpe(counts.sorted(), {.vocabulary_size = 330}, [](std::int64_t, std::int64_t) {}));
  const auto expected = fixture();
  for (std::size_t i = 0; i < expected["texts"].size(); ++i) {
    EXPECT_EQ(encode(*tokenizer, expected["texts"][i].get<std::string>()),
              expected["ids"][i].get<std::vector<std::int32_t>>())
        << expected["texts"][i];
  }
}

TEST(HuggingFace, CutsTheSameWordsByEveryPattern) {
  const auto expected = fixture();
  for (const auto& [name, pattern] : {std::pair("gpt2", WordPattern::gpt2),
                                      {"llama3", WordPattern::llama3},
                                      {"qwen2", WordPattern::qwen2},
                                      {"tekken", WordPattern::tekken},
                                      {"o200k", WordPattern::o200k}}) {
    const WordSplitter splitter(pattern);
    for (std::size_t i = 0; i < expected["split_texts"].size(); ++i) {
      const auto text = expected["split_texts"][i].get<std::string>();
      const std::vector<std::string> words = words_of(text, splitter);
      EXPECT_EQ(words, expected["words"][name][i].get<std::vector<std::string>>()) << name << ": " << text;
      // Allowed cuts do not change the words.
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        if (!splitter.can_cut(text, cut)) continue;
        std::vector<std::string> joined = words_of(text.substr(0, cut), splitter);
        std::ranges::move(words_of(text.substr(cut), splitter), std::back_inserter(joined));
        EXPECT_EQ(joined, words) << name << " at " << cut << ": " << text;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::data
