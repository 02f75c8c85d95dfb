#include "src/data/dataset/bert/bert_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/data/dataset/bert/bert_corpus.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::data {
namespace {

using test::message_of;
using test::sentence_store_of_sizes;
using testing::HasSubstr;

/// Ten documents of 3 sentences and 30 tokens each, with distinct ids.
std::shared_ptr<const MemoryTokenStore> ten_documents() {
  return sentence_store_of_sizes(std::vector<std::vector<std::size_t>>(10, {10, 9, 11}));
}

BertDataOptions options_of(std::vector<SampleBudget> budgets) {
  BertDataOptions options;
  options.samples.sequence_length = 32;
  options.samples.masking.vocabulary = test::bert_vocabulary();
  options.split_by = SplitBy::documents;
  options.split_fractions = parse_split("6,2,2");
  options.budgets = std::move(budgets);
  return options;
}

std::vector<std::int32_t> tokens_of(const SampleSource& source, std::int64_t index) {
  const SampleBuffer buffer(source.sequence_length(), {});
  source.read(index, buffer.view());
  return {buffer.view().tokens.begin(), buffer.view().tokens.end()};
}

TEST(BertData, KeepsTheSplitsApart) {
  for (const SplitBy by : {SplitBy::documents, SplitBy::tokens}) {
    BertDataOptions options = options_of({{60, 40, 20}});
    options.split_by = by;
    const SampleSplits data = make_bert_data({{ten_documents()}}, options);
    std::array<std::set<std::int64_t>, 3> seen;
    const std::array<const SampleSource*, 3> sources = {data.train.get(), data.valid.get(), data.test.get()};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& samples = dynamic_cast<const BertSamples&>(*sources[i]);
      for (std::int64_t k = 0; k < samples.size(); ++k) seen[i].insert(samples.make(k).row.first_sentence / 3);
    }
    EXPECT_THAT(seen[0], testing::ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(seen[1], testing::ElementsAre(6, 7));
    EXPECT_THAT(seen[2], testing::ElementsAre(8, 9));
  }
  EXPECT_EQ(make_bert_data({{ten_documents()}}, options_of({{1, 0, 1}})).valid, nullptr);
}

TEST(BertData, BlendsCorpora) {
  const auto first = ten_documents();
  const auto second = sentence_store_of_sizes(std::vector<std::vector<std::size_t>>(10, {12, 12}));
  const BertDataOptions options = options_of({{40, 0, 0}});
  const SampleSplits blend = make_bert_data({{first, 1}, {second, 3}}, options);
  const SampleSplits alone = make_bert_data({{second}}, options_of({{31, 0, 0}}));
  ASSERT_EQ(blend.train->size(), 40);
  EXPECT_EQ(blend.train->fields(), (SampleFields{.token_types = true, .length = true, .is_random = true}));
  std::int64_t of_second = 0;
  for (std::int64_t i = 0; i < 40; ++i) {
    of_second += tokens_of(*blend.train, i) == tokens_of(*alone.train, of_second);
  }
  EXPECT_EQ(of_second, 30);
}

TEST(BertData, ReportsWhichSplitsHaveSamples) {
  const auto store = sentence_store_of_sizes({{5, 5}, {5, 5}, {5}});
  BertDataOptions options = options_of({{1, 0, 0}});
  options.split_fractions = parse_split("1,1,1");
  EXPECT_TRUE(has_samples({{store}}, options, Split::valid));
  EXPECT_FALSE(has_samples({{store}}, options, Split::test));
  options.samples.masking.binary_head = false;
  EXPECT_TRUE(has_samples({{store}}, options, Split::test));
}

TEST(BertData, RefusesInvalidSettings) {
  const auto error_of = [](const std::vector<WeightedStore>& stores, const BertDataOptions& options) {
    return message_of([&] { make_bert_data(stores, options); });
  };
  BertDataOptions options = options_of({{1, 0, 0}});
  EXPECT_THAT(error_of({}, options), HasSubstr("names no corpus"));
  options.vocabulary_size = 30523;
  EXPECT_THAT(error_of({{ten_documents()}}, options), HasSubstr("<vocab_size> 30523 must be at least 30524"));
  options.vocabulary_size = 300;
  EXPECT_THAT(error_of({{ten_documents()}}, options), HasSubstr("holds token 403"));
  options = options_of({{1, 0, 0}});
  options.samples.masking.vocabulary.size = 30522;
  EXPECT_THAT(error_of({{ten_documents()}}, options), HasSubstr("30522 ids, but the tokenizer of memory has 30524"));
}

TEST(BertData, SaysWhetherTokensAreMasked) {
  EXPECT_FALSE(masks_tokens(32, 0.03));
  EXPECT_TRUE(masks_tokens(32, 0.035));
  EXPECT_FALSE(masks_tokens(8, 0.15));
}

TEST(BertData, AttributesIncludeAllInputsOfTheSamples) {
  const std::vector<WeightedStore> stores = {{ten_documents()}};
  const BertDataOptions options = options_of({});
  const Attributes attributes = attributes_of(stores, options);
  EXPECT_EQ(attributes.texts().at("data.binary_head"), "true");
  EXPECT_EQ(attributes.texts().at("data.sequence_length"), "32");
  const auto changes = [&](const auto& change) {
    BertDataOptions changed = options;
    change(changed);
    return !(attributes_of(stores, changed) == attributes);
  };
  EXPECT_TRUE(changes([](BertDataOptions& o) { o.samples.seed = 1; }));
  EXPECT_TRUE(changes([](BertDataOptions& o) { o.samples.masking.mask_probability = 0.2; }));
  EXPECT_TRUE(changes([](BertDataOptions& o) { o.samples.short_sequence_probability = 0.2; }));
  EXPECT_TRUE(changes([](BertDataOptions& o) { o.samples.masking.binary_head = false; }));
  EXPECT_TRUE(changes([](BertDataOptions& o) { o.split_by = SplitBy::tokens; }));
}

}  // namespace
}  // namespace trireme::data
