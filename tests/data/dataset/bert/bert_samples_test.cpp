#include "src/data/dataset/bert/bert_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "tests/data/dataset/bert/bert_corpus.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::data {
namespace {

using test::message_of;
using test::sentence_store;
using test::sentence_store_of_sizes;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

DocumentRange all_of(const TokenStore& store) {
  return documents_of(store, Split::train, {1, 0, 0}, SplitBy::documents);
}

BertSampleOptions options_of(std::int64_t sequence_length, bool binary_head = true) {
  BertSampleOptions options;
  options.sequence_length = sequence_length;
  options.masking = {test::bert_vocabulary(), 0.15, binary_head};
  return options;
}

BertSamples samples_of(const std::shared_ptr<const TokenStore>& store, const BertSampleOptions& options,
                       const std::vector<std::int64_t>& budgets, IndexCache* cache = nullptr) {
  return {store, all_of(*store), options, budgets, cache};
}

std::vector<BertSampleRow> rows_of(const BertSampleMap& map) {
  std::vector<BertSampleRow> rows;
  for (std::int64_t i = 0; i < map.size(); ++i) rows.push_back(map.row(i));
  return rows;
}

/// Rows of one epoch without short targets.
std::vector<BertSampleRow> rows_of(const TokenStore& store, std::int64_t max_target, std::int64_t min_sentences) {
  BertSampleMapOptions options;
  options.max_target_length = max_target;
  options.short_sequence_probability = 0;
  options.min_sentences = min_sentences;
  options.max_epochs = 1;
  auto rows = rows_of(BertSampleMap(store, all_of(store), options));
  std::ranges::sort(rows, {}, &BertSampleRow::first_sentence);
  return rows;
}

std::vector<std::int32_t> text_of(const BertSample& sample) {
  std::vector<std::int32_t> text = sample.tokens;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (sample.labels[i] >= 0) text[i] = sample.labels[i];
  }
  return text;
}

// The samples here and the map of the next test come from Megatron-LM.
TEST(BertSample, MatchesMegatron) {
  const auto make = [](const test::Sentences& sentences, std::int64_t target, std::uint32_t seed, bool binary_head) {
    NumpyRandom random(seed);
    return make_bert_sample(*sentence_store({sentences}), {0, std::ssize(sentences), target},
                            {test::bert_vocabulary({2135, 2571, 4523, 15474}), 0.15, binary_head}, random);
  };
  const BertSample one = make({{25652, 3047, 14057, 2135, 2000, 15804, 2149, 1012, 2720, 1012},
                               {24185, 4523, 2571, 1005, 1055},
                               {2307, 1011, 5916, 11438, 1037, 4484, 10427, 1997, 2542, 2046, 2029, 2016, 2018}},
                              61, 77, false);
  EXPECT_THAT(one.tokens,
              ElementsAre(101, 25652, 3047, 14057, 2135, 2000, 15804, 2149, 1012, 2720, 1012, 24185, 4523, 2571, 103,
                          17843, 2307, 1011, 5916, 103, 103, 4484, 10427, 1997, 2542, 2046, 2029, 2016, 2018, 102));
  EXPECT_THAT(one.labels, ElementsAre(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1005, 1055, -1, -1, -1,
                                      11438, 1037, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(one.token_types, Each(0));
  EXPECT_FALSE(one.is_random);
  EXPECT_FALSE(one.is_truncated);

  const BertSample swapped = make(
      {{1045, 2001, 2467, 2170, 1999, 2000}, {9611, 1012, 1996}, {3447, 1997, 14163, 15474, 2612, 1997, 4200, 1010}},
      61, 1234, true);
  EXPECT_THAT(swapped.tokens, ElementsAre(101, 3447, 1997, 14163, 15474, 103, 1997, 4200, 1010, 102, 1045, 2001, 2467,
                                          2170, 103, 103, 9611, 1012, 1996, 102));
  EXPECT_THAT(swapped.token_types, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_TRUE(swapped.is_random);

  const BertSample cut = make({{14422, 2000, 2014, 1010, 1045, 2001, 1037, 2062, 11476, 4874, 1997, 10928},
                               {2084, 2151, 2028, 2842, 1012, 2021},
                               {2043, 1010, 1999, 1996, 24509, 2422, 1997, 2279, 2851, 1010, 1045, 2211}},
                              2, 0, true);
  EXPECT_THAT(cut.tokens, ElementsAre(101, 2062, 102, 2021, 102));
  EXPECT_THAT(cut.labels, Each(-1));
  EXPECT_TRUE(cut.is_truncated);
}

TEST(BertSampleMap, MatchesMegatron) {
  const auto store = sentence_store_of_sizes({{21, 41, 6, 8, 65, 115, 56, 28, 127, 68, 42}});
  BertSampleMapOptions options;
  options.max_target_length = 125;
  options.max_epochs = 1;
  EXPECT_THAT(rows_of(BertSampleMap(*store, all_of(*store), options)),
              ElementsAre(BertSampleRow{7, 9, 125}, BertSampleRow{0, 5, 125}, BertSampleRow{5, 7, 125},
                          BertSampleRow{9, 11, 125}));
}

TEST(BertSampleMap, LeavesOutDocumentsOfOneSentenceAndLongSentences) {
  const auto store = sentence_store_of_sizes({{4}, {}, {4, 4}, {4, 513, 4}, {4, 512, 4}, {700}});
  // A sample takes a second sentence rather than leave a single one.
  log::initialise(0, 1);
  testing::internal::CaptureStderr();
  EXPECT_THAT(rows_of(*store, 8, 2), ElementsAre(BertSampleRow{1, 3, 8}, BertSampleRow{6, 9, 8}));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("memory: 4 of 6 documents give no BERT sample: they have fewer than 2 sentences, or one of more "
                "than 512 tokens"));
  EXPECT_THAT(rows_of(*store, 8, 1), ElementsAre(BertSampleRow{0, 1, 8}, BertSampleRow{1, 3, 8}, BertSampleRow{6, 9, 8},
                                                 BertSampleRow{9, 10, 8}));
}

TEST(BertSampleMap, RefusesMoreSamplesThanMemoryHoldsBeforeItCountsThem) {
  const auto store = sentence_store_of_sizes({{5, 7}});
  BertSampleMapOptions options;
  options.max_target_length = 8;
  options.max_samples = std::int64_t{1} << 60;
  EXPECT_THAT(message_of([&] { BertSampleMap(*store, all_of(*store), options); }),
              HasSubstr("the map of 1152921504606846976 BERT samples takes 12884901888.0 GiB of memory"));
  std::swap(options.max_epochs, options.max_samples);
  EXPECT_THAT(message_of([&] { BertSampleMap(*store, all_of(*store), options); }), HasSubstr("GiB of memory"));
  // Linux would reserve this much, but the limit leaves a quarter of the memory to others.
  options.max_epochs = static_cast<std::int64_t>(machine_memory_bytes() / (3 * sizeof(std::uint32_t)) / 8 * 7);
  EXPECT_THAT(message_of([&] { BertSampleMap(*store, all_of(*store), options); }),
              HasSubstr("too much for this machine"));
}

TEST(BertSampleMap, DrawsTheRequestedShareOfShortTargets) {
  const auto store = sentence_store_of_sizes(std::vector<std::vector<std::size_t>>(4000, {5, 5}));
  BertSampleMapOptions options;
  options.max_target_length = 100;
  options.max_epochs = 1;
  const auto shorts = [&](double probability) {
    options.short_sequence_probability = probability;
    const auto rows = rows_of(BertSampleMap(*store, all_of(*store), options));
    EXPECT_EQ(rows.size(), 4000u);
    for (const BertSampleRow& row : rows) {
      EXPECT_GE(row.target_length, 2);
      EXPECT_LE(row.target_length, 100);
    }
    return std::ranges::count_if(rows, [](const BertSampleRow& row) { return row.target_length < 100; });
  };
  EXPECT_EQ(shorts(0), 0);
  EXPECT_EQ(shorts(1e-300), 0);
  EXPECT_NEAR(static_cast<double>(shorts(0.1)), 400, 60);
  EXPECT_NEAR(static_cast<double>(shorts(1)), 4000, 80);
}

TEST(BertSamples, KeepTheTextInOrderOrSwapped) {
  const auto store = sentence_store_of_sizes({{5, 7}, {6, 9, 4}});
  BertSampleOptions options = options_of(64);
  options.short_sequence_probability = 0;
  const BertSamples samples = samples_of(store, options, {200});
  std::map<bool, int> orders;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const BertSample sample = samples.make(i);
    const std::vector<std::int32_t> text = text_of(sample);
    const auto sep = std::ranges::find(text, 102);
    const bool follows = *(sep - 1) + 1 == *(sep + 1);
    EXPECT_EQ(sample.is_random, !follows);
    EXPECT_EQ(text.front(), 101);
    EXPECT_EQ(text.back(), 102);
    EXPECT_EQ(std::ranges::count(sample.token_types, 0), sep - text.begin() + 1);
    ++orders[sample.is_random];
  }
  EXPECT_GT(orders[false], 60);
  EXPECT_GT(orders[true], 60);
}

TEST(BertSamples, MaskWholeWordsAtTheRequestedRates) {
  // Every third piece continues the word before it.
  std::vector<std::int32_t> continuations;
  for (std::int32_t id = 106; id < 30'104; id += 3) continuations.push_back(id);
  const auto store = sentence_store_of_sizes(std::vector<std::vector<std::size_t>>(50, {60, 60, 60}));
  BertSampleOptions options = options_of(128);
  options.masking.vocabulary = test::bert_vocabulary(continuations);
  options.short_sequence_probability = 0;
  const BertSamples samples = samples_of(store, options, {1000});
  double masked = 0, replaced = 0, kept = 0;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const BertSample sample = samples.make(i);
    const auto in_sample = std::ranges::count_if(sample.labels, [](std::int32_t label) { return label >= 0; });
    EXPECT_LE(static_cast<double>(in_sample), 0.15 * 125);
    EXPECT_GE(in_sample, 17);
    const std::vector<std::int32_t> text = text_of(sample);
    for (std::size_t at = 1; at < text.size(); ++at) {
      EXPECT_TRUE(text[at] > 103 || sample.labels[at] < 0);
      const bool continues = options.masking.vocabulary.continues_word[static_cast<std::size_t>(text[at])];
      const bool follows_word = continues && text[at - 1] > 103;
      EXPECT_TRUE(!follows_word || (sample.labels[at] >= 0) == (sample.labels[at - 1] >= 0));
      if (sample.labels[at] < 0) continue;
      ++masked;
      replaced += sample.tokens[at] == 103;
      kept += sample.tokens[at] == sample.labels[at];
    }
  }
  EXPECT_NEAR(replaced / masked, 0.8, 0.02);
  EXPECT_NEAR(kept / masked, 0.1, 0.02);
}

TEST(BertSamples, FillTheRestOfASample) {
  const BertSamples samples = samples_of(sentence_store_of_sizes({{3, 4}}), options_of(16), {1});
  const SampleBuffer buffer(16, samples.fields());
  std::ranges::fill(buffer.view().tokens, 7);
  std::ranges::fill(buffer.view().token_types, 7);
  std::ranges::fill(buffer.view().labels, 7);
  samples.read(0, buffer.view());
  EXPECT_THAT(buffer.view().length, ElementsAre(10));
  EXPECT_THAT(buffer.view().tokens.subspan(10), Each(0));
  EXPECT_THAT(buffer.view().token_types.subspan(10), Each(0));
  EXPECT_THAT(buffer.view().labels.subspan(10), Each(-1));
  EXPECT_THROW(samples.read(samples.size(), buffer.view()), DataError);
  EXPECT_THROW(samples.read(-1, buffer.view()), DataError);
  const SampleBuffer small(9, samples.fields());
  EXPECT_THROW(samples.read(0, small.view()), ShapeError);
}

TEST(BertSamples, AGrowingBudgetKeepsTheSamplesBefore) {
  const auto store = sentence_store_of_sizes({{5, 7}, {6, 9, 4}, {8, 8, 8, 8}});
  const BertSamples first = samples_of(store, options_of(24), {20});
  const BertSamples grown = samples_of(store, options_of(24), {20, 10, 100});
  ASSERT_GE(grown.size(), 100);
  for (std::int64_t i = 0; i < first.size(); ++i) EXPECT_EQ(grown.make(i).tokens, first.make(i).tokens);
  EXPECT_EQ(samples_of(store, options_of(24), {20, first.size()}).size(), first.size());
}

TEST(BertSamples, RefuseInvalidSettings) {
  const auto store = sentence_store_of_sizes({{5, 7}});
  const auto error_of = [&](const std::shared_ptr<const TokenStore>& corpus, const BertSampleOptions& options) {
    return message_of([&] { samples_of(corpus, options, {1}); });
  };
  EXPECT_THAT(error_of(store, options_of(4)), HasSubstr("<seq_length> 4 must be at least 5"));
  BertSampleOptions options = options_of(16);
  options.seed = std::int64_t{1} << 32;
  EXPECT_THAT(error_of(store, options), HasSubstr("<seed> 4294967296 must be from 0"));
  options = options_of(16);
  options.short_sequence_probability = 1.5;
  EXPECT_THAT(error_of(store, options), HasSubstr("<short_seq_prob> 1.5 must be from 0 to 1"));
  EXPECT_THAT(error_of(sentence_store_of_sizes({{5}, {}, {600, 5}}), options_of(16)),
              HasSubstr("none of 3 documents of memory gives a BERT sample"));
  EXPECT_THAT(error_of(sentence_store_of_sizes({}), options_of(16)), HasSubstr("none of 0 documents"));
}

TEST(BertVocabulary, IsReadFromAListOfTokens) {
  std::vector<std::string> tokens = {"a", "[MASK]", "##b", "[PAD]", "[SEP]", "#", "[CLS]", "##"};
  const BertVocabulary vocabulary = bert_vocabulary_of(tokens);
  EXPECT_EQ(vocabulary.size, 8);
  EXPECT_EQ(vocabulary.mask, 1);
  EXPECT_EQ(vocabulary.pad, 3);
  EXPECT_EQ(vocabulary.sep, 4);
  EXPECT_EQ(vocabulary.cls, 6);
  EXPECT_THAT(vocabulary.continues_word, ElementsAre(false, false, true, false, false, false, false, true));
  tokens[1] = "[mask]";
  EXPECT_THAT(message_of<DataError>([&] { bert_vocabulary_of(tokens); }), HasSubstr("has no [MASK]"));
}

/// Caches arrays in memory, by description.
class MemoryCache final : public IndexCache {
 public:
  Kept find(const SampleOrder& order) override {
    ++searches;
    const auto found = kept.find(order.description);
    if (found == kept.end()) return {};
    return {{std::as_bytes(std::span(*found->second))}, found->second};
  }
  Kept keep(const SampleOrder& order, const Arrays& arrays) override {
    EXPECT_EQ(arrays.size(), 1u);
    const auto copy = std::make_shared<std::vector<std::uint32_t>>(arrays[0].size() / sizeof(std::uint32_t));
    std::ranges::copy(arrays[0], std::as_writable_bytes(std::span(*copy)).begin());
    kept[order.description] = copy;
    return {{std::as_bytes(std::span(*copy))}, copy};
  }
  int searches = 0;
  std::map<std::string, std::shared_ptr<std::vector<std::uint32_t>>> kept;
};

TEST(BertSamples, LoadTheirMapFromTheCache) {
  const auto store = sentence_store_of_sizes({{5, 7}, {6, 9, 4}, {8, 8, 8, 8}});
  MemoryCache cache;
  const BertSamples plain = samples_of(store, options_of(24), {20});
  const BertSamples made = samples_of(store, options_of(24), {20}, &cache);
  ASSERT_EQ(cache.kept.size(), 1u);
  EXPECT_EQ(cache.searches, 1);
  std::vector<std::uint32_t>& rows = *cache.kept.begin()->second;
  EXPECT_EQ(rows.size(), 3 * static_cast<std::size_t>(plain.size()));
  for (std::int64_t i = 0; i < plain.size(); ++i) EXPECT_EQ(made.make(i).tokens, plain.make(i).tokens);
  // The samples read the cache's memory: they see a changed row, and detect one that is not a sample.
  const std::vector<std::uint32_t> before = rows;
  std::ranges::copy(std::vector<std::uint32_t>{0, 2, 21}, rows.begin());
  EXPECT_EQ(made.make(0).row, (BertSampleRow{0, 2, 21}));
  EXPECT_EQ(samples_of(store, options_of(24), {20}, &cache).make(0).row, (BertSampleRow{0, 2, 21}));
  const std::vector<std::vector<std::uint32_t>> bad_rows = {{0, 1, 21}, {2, 1, 21}, {8, 10, 21}, {0, 2, 22}, {0, 2, 1}};
  for (const auto& bad : bad_rows) {
    std::ranges::copy(bad, rows.begin());
    EXPECT_THAT(message_of<DataError>([&] { made.make(0); }), HasSubstr("folder index-cache"));
  }
  // A map of the wrong size is rebuilt.
  rows.resize(rows.size() - 1);
  EXPECT_EQ(samples_of(store, options_of(24), {20}, &cache).size(), plain.size());
  EXPECT_EQ(*cache.kept.begin()->second, before);
}

TEST(BertSamples, CacheOneMapPerSetOfInputs) {
  const auto store = sentence_store_of_sizes({{5, 7}, {6, 9, 4}, {8, 8, 8, 8}});
  MemoryCache cache;
  std::size_t maps = 0;
  const auto expect_another = [&](const BertSampleOptions& options, std::int64_t budget) {
    samples_of(store, options, {budget}, &cache);
    EXPECT_EQ(cache.kept.size(), ++maps);
  };
  expect_another(options_of(24), 20);
  expect_another(options_of(24), 60);
  expect_another(options_of(25), 20);
  expect_another(options_of(24, false), 20);
  BertSampleOptions options = options_of(24);
  options.short_sequence_probability = 0.12;  // 1/8; rounded to one digit it is 1/10
  expect_another(options, 20);
  options = options_of(24);
  options.seed = 1235;
  expect_another(options, 20);
  // Masking does not affect the map.
  options = options_of(24);
  options.masking.mask_probability = 0.3;
  samples_of(store, options, {20}, &cache);
  EXPECT_EQ(cache.kept.size(), maps);
}

}  // namespace
}  // namespace trireme::data
