#include "src/data/tokenizer/bpe_trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "src/base/error.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

using Words = std::vector<std::pair<std::string, std::int64_t>>;

BpeVocabulary train(const Words& words, const BpeTrainingOptions& options) {
  return train_bpe(words, options, [](std::int64_t, std::int64_t) {});
}

TEST(WordCounts, CountsTheWordsOfGpt2sPattern) {
  const SplitWords splitter(named_splits()[0].steps);
  WordCounts counts;
  counts.add_text("the ship's the  ship", splitter);
  EXPECT_THAT(counts.sorted(),
              ElementsAre(Pair(" ", 1), Pair(" ship", 2), Pair(" the", 1), Pair("'s", 1), Pair("the", 1)));
  WordCounts even, odd;
  even.add(counts, 0, 2);
  odd.add(counts, 1, 2);
  EXPECT_EQ(even.size() + odd.size(), 5u);
  even.add(counts, 1, 2);
  EXPECT_EQ(even.sorted(), counts.sorted());
  EXPECT_EQ(counts.forget(1), 4);
  EXPECT_THAT(counts.sorted(), ElementsAre(Pair(" ship", 2)));
  counts.clear();
  counts.add_text(std::string(600, 'x'), splitter);
  EXPECT_THAT(counts.sorted(), ElementsAre(Pair(std::string(88, 'x'), 1), Pair(std::string(256, 'x'), 2)));
}

TEST(BpeTrainer, MergesTheMostFrequentPairAndBreaksTiesByTheSmallerIds) {
  const Words words{{"ab", 5}, {"abc", 3}, {"zz", 8}, {"bc", 2}};
  const BpeVocabulary vocabulary = train(words, {.vocabulary_size = 260, .min_frequency = 2});
  EXPECT_THAT(vocabulary.merges, ElementsAre(Pair("a", "b"), Pair("z", "z"), Pair("ab", "c")));
  ASSERT_EQ(vocabulary.tokens.size(), 260u);
  EXPECT_EQ(vocabulary.tokens[0], "!");
  EXPECT_EQ(vocabulary.tokens[256], "ab");
  EXPECT_EQ(vocabulary.tokens[258], "abc");
  EXPECT_EQ(vocabulary.tokens[259], "<|endoftext|>");
  EXPECT_EQ(vocabulary.end_of_document, 259);
  EXPECT_NO_THROW(make_gpt2_tokenizer(vocabulary));
}

TEST(BpeTrainer, StopsWhereNoPairIsFrequentEnough) {
  EXPECT_EQ(train({{"ab", 5}, {"cd", 2}}, {.vocabulary_size = 1000, .min_frequency = 3}).merges.size(), 1u);
  EXPECT_EQ(train({{"a", 5}}, {.vocabulary_size = 1000}).merges.size(), 0u);
}

TEST(BpeTrainer, NeverMakesATokenTwice) {
  // Both a + bc and ab + c would spell abc; <x> is a special token.
  const Words words{{"bc", 100}, {"ab", 90}, {"abc", 50}, {"abd", 10}, {"<x>", 40}};
  const BpeVocabulary vocabulary =
      train(words, {.vocabulary_size = 400, .min_frequency = 1, .special_tokens = {"<|endoftext|>", "<x>"}});
  const std::set<std::string> different(vocabulary.tokens.begin(), vocabulary.tokens.end());
  EXPECT_EQ(different.size(), vocabulary.tokens.size());
  EXPECT_NO_THROW(make_gpt2_tokenizer(vocabulary));
}

TEST(BpeTrainer, RefusesAVocabularyWithoutRoomForTheBytes) {
  EXPECT_THAT(
      [] {
        train({{"a", 1}}, {.vocabulary_size = 256});
      },
      ThrowsMessage<ConfigError>(HasSubstr("a vocabulary of 256 tokens is not possible")));
}

/// The textbook algorithm: recounts all pairs for every merge.
std::vector<std::pair<std::string, std::string>> train_naively(const Words& words, const BpeVocabulary& like,
                                                               std::size_t merges) {
  std::map<std::string, std::size_t> id_of;
  for (std::size_t id = 0; id < 256; ++id) id_of[like.tokens[id]] = id;
  std::vector<std::pair<std::vector<std::string>, std::int64_t>> split;
  for (const auto& [word, count] : words) {
    split.emplace_back(std::vector<std::string>{}, count);
    for (const char c : word) split.back().first.emplace_back(1, c);
  }
  std::set<std::pair<std::string, std::string>> passed_over;
  std::vector<std::pair<std::string, std::string>> result;
  while (result.size() < merges) {
    std::map<std::pair<std::string, std::string>, std::int64_t> counts;
    for (const auto& [symbols, count] : split) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    }
    for (const auto& pair : passed_over) counts.erase(pair);
    const auto best = std::ranges::max_element(counts, [&](const auto& a, const auto& b) {
      const auto ids = [&](const auto& pair) { return std::pair(id_of[pair.first], id_of[pair.second]); };
      return a.second != b.second ? a.second < b.second : ids(a.first) > ids(b.first);
    });
    if (best == counts.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    if (id_of.contains(left + right)) {
      passed_over.insert({left, right});
      continue;
    }
    id_of[left + right] = 256 + result.size();
    result.emplace_back(left, right);
    for (auto& [symbols, count] : split) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += right;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return result;
}

TEST(BpeTrainer, MatchesTheReferenceAlgorithmOnRandomWords) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 30; ++trial) {
    std::map<std::string, std::int64_t> words;
    for (int i = 0; i < 40; ++i) {
      std::string word;
      const std::size_t size = 1 + random() % 12;
      while (word.size() < size) word += "abcd"[random() % 4];
      words[word] = 1 + static_cast<std::int64_t>(random() % 5);
    }
    const Words list(words.begin(), words.end());
    const BpeVocabulary vocabulary = train(list, {.vocabulary_size = 256 + 60 + 1});
    ASSERT_EQ(vocabulary.merges, train_naively(list, vocabulary, 60)) << trial;
  }
}

}  // namespace
}  // namespace trireme::data
