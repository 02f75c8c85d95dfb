#include "src/data/dataset/gpt_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "src/base/error.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/sample_text.hpp"

namespace trireme::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto sample = test::text_of;

/// Documents of the given sizes, with consecutive ids from `first_id`.
std::shared_ptr<const MemoryTokenStore> counting_store(const std::vector<std::size_t>& sizes, std::int32_t first_id = 0,
                                                       std::int64_t vocabulary_size = 100'000) {
  std::vector<std::vector<std::int32_t>> documents;
  for (const std::size_t size : sizes) {
    auto& document = documents.emplace_back(size);
    std::iota(document.begin(), document.end(), first_id);
    first_id += static_cast<std::int32_t>(size);
  }
  CorpusInfo info;
  info.tokenizer = "counting";
  info.tokenizer_digest = "c0";
  info.vocabulary_size = vocabulary_size;
  return std::make_shared<MemoryTokenStore>(info, documents);
}

GptDataOptions options_of(std::int64_t sequence_length, std::vector<SampleBudget> budgets) {
  GptDataOptions options;
  options.sequence_length = sequence_length;
  options.split_by = SplitBy::documents;
  options.split_fractions = parse_split("1");
  options.budgets = std::move(budgets);
  return options;
}

std::vector<std::vector<std::int32_t>> samples(const SampleSource& source, std::int64_t count) {
  std::vector<std::vector<std::int32_t>> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(sample(source, i));
  return result;
}

template <class ErrorType>
std::string error_of(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  return test::message_of<ErrorType>([&] { make_gpt_data(stores, options); });
}

// Documents in the order 4 0 1 2 3 give the stream 30..36 0..4 5..13 14 15 16..29, read in the order of samples 2 1 3
// 0.
TEST(SampleSplits, ReadsMegatronsSamplesAcrossDocuments) {
  const auto data = make_gpt_data({{counting_store({5, 9, 2, 14, 7})}}, options_of(8, {{4, 0, 0}}));
  ASSERT_EQ(data.train->size(), 4);
  EXPECT_EQ(data.train->sequence_length(), 8);
  EXPECT_THAT(sample(*data.train, 0), ElementsAre(9, 10, 11, 12, 13, 14, 15, 16, 17));
  EXPECT_THAT(sample(*data.train, 1), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(sample(*data.train, 2), ElementsAre(17, 18, 19, 20, 21, 22, 23, 24, 25));
  EXPECT_THAT(sample(*data.train, 3), ElementsAre(30, 31, 32, 33, 34, 35, 36, 0, 1));
  EXPECT_EQ(data.valid, nullptr);
  EXPECT_EQ(data.test, nullptr);
}

// The same samples. Parts of a document in two splits are separate documents.
TEST(SampleSplits, MarksTheDocumentsOfEverySample) {
  const auto expect_marks = [](const SampleSource& source, std::int64_t index, std::vector<std::int32_t> positions,
                               std::vector<std::int32_t> labels) {
    EXPECT_TRUE(source.fields().positions && source.fields().first_visible);
    const SampleBuffer buffer(std::ssize(positions), {.positions = true, .first_visible = true});
    source.read(index, buffer.view());
    EXPECT_THAT(buffer.view().positions, testing::ElementsAreArray(positions));
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i) - positions[i];
    EXPECT_THAT(buffer.view().first_visible, testing::ElementsAreArray(positions));
    EXPECT_THAT(buffer.view().labels, testing::ElementsAreArray(labels));
  };
  GptDataOptions options = options_of(8, {{4, 0, 0}});
  options.document_ends = DocumentEnds::unlabelled;
  const auto store = counting_store({5, 9, 2, 14, 7});
  const auto data = make_gpt_data({{store}}, options);
  expect_marks(*data.train, 0, {0, 1, 2, 3, 4, 0, 1, 0}, {10, 11, 12, 13, -1, 15, -1, 17});
  expect_marks(*data.train, 1, {0, 1, 2, 3, 0, 1, 2, 3}, {2, 3, 4, -1, 6, 7, 8, 9});
  expect_marks(*data.train, 2, {0, 1, 2, 3, 4, 5, 6, 7}, {18, 19, 20, 21, 22, 23, 24, 25});
  expect_marks(*data.train, 3, {0, 1, 2, 3, 4, 5, 6, 0}, {31, 32, 33, 34, 35, 36, -1, 1});
  const auto blend = make_gpt_data({{store}, {store}}, options);
  expect_marks(*blend.train, 0, {0, 1, 2, 3, 4, 0, 1, 0}, {10, 11, 12, 13, -1, 15, -1, 17});

  options.split_by = SplitBy::tokens;
  options.split_fractions = parse_split("1,1");
  const auto half = make_gpt_data({{counting_store({26})}}, options);  // repeats 0 to 12
  for (std::int64_t index = 0; index < 4; ++index) {
    const std::vector<std::int32_t> text = sample(*half.train, index);
    std::vector<std::int32_t> positions, labels;
    for (std::size_t i = 0; i < 8; ++i) {
      positions.push_back(i == 0 || text[i] == 0 ? 0 : positions.back() + 1);
      labels.push_back(text[i] == 12 ? -1 : text[i + 1]);
    }
    expect_marks(*half.train, index, positions, labels);
  }
}

TEST(SampleSplits, KeepsTheSplitsApart) {
  for (const SplitBy by : {SplitBy::documents, SplitBy::tokens}) {
    GptDataOptions options = options_of(4, {{30, 20, 10}});
    options.split_by = by;
    options.split_fractions = parse_split("6,2,2");
    const auto data = make_gpt_data({{counting_store(std::vector<std::size_t>(10, 13))}}, options);
    std::array<std::set<std::int32_t>, 3> seen;
    const std::array<const SampleSource*, 3> sources = {data.train.get(), data.valid.get(), data.test.get()};
    for (std::size_t i = 0; i < 3; ++i) {
      for (const auto& tokens : samples(*sources[i], sources[i]->size())) seen[i].insert(tokens.begin(), tokens.end());
    }
    EXPECT_EQ(*seen[0].begin(), 0);
    EXPECT_LT(*seen[0].rbegin(), 6 * 13);
    EXPECT_GE(*seen[1].begin(), 6 * 13);
    EXPECT_LT(*seen[1].rbegin(), 8 * 13);
    EXPECT_GE(*seen[2].begin(), 8 * 13);
  }
}

TEST(SampleSplits, SequentialReadsTheCorpusFromItsStartInEverySplit) {
  GptDataOptions options = options_of(4, {{3, 2, 0}});
  options.sampling = Sampling::sequential;
  const auto data = make_gpt_data({{counting_store({6, 7})}}, options);
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_THAT(samples(*data.train, 3),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4), ElementsAre(4, 5, 6, 7, 8), ElementsAre(8, 9, 10, 11, 12)));
  EXPECT_EQ(samples(*data.valid, 2), samples(*data.train, 2));
  EXPECT_THROW(sample(*data.train, 3), DataError);
  EXPECT_THROW(sample(*data.train, -1), DataError);
}

TEST(SampleSplits, SequentialPastTheEndIsAnErrorBeforeTheRun) {
  GptDataOptions options = options_of(4, {{4, 0, 0}});
  options.sampling = Sampling::sequential;
  EXPECT_THAT(error_of<DataError>({{counting_store({6, 7})}}, options),
              AllOf(HasSubstr("4 training samples"), HasSubstr("13 tokens, enough for 3")));
  EXPECT_THAT(error_of<ConfigError>({{counting_store({20})}, {counting_store({20})}}, options),
              HasSubstr("reads one corpus"));
}

TEST(SampleSplits, AGrowingBudgetKeepsTheEpochsThatWereBegun) {
  const auto store = counting_store({30, 25, 40, 13, 52, 8, 21});
  const auto first = make_gpt_data({{store}}, options_of(8, {{45, 0, 0}}));
  ASSERT_EQ(first.train->size(), 47);
  const auto grown = make_gpt_data({{store}}, options_of(8, {{45, 0, 0}, {100, 0, 0}, {40, 0, 0}}));
  EXPECT_GE(grown.train->size(), 100);
  EXPECT_EQ(samples(*grown.train, 47), samples(*first.train, 47));
  // A new run of 100 samples has a different order.
  const auto anew = make_gpt_data({{store}}, options_of(8, {{100, 0, 0}}));
  EXPECT_NE(samples(*anew.train, 47), samples(*first.train, 47));
  // The following samples are shuffled with the next seed.
  GptDataOptions next_seed = options_of(8, {{53, 0, 0}});
  next_seed.seed = 1235;
  const auto rest = make_gpt_data({{store}}, next_seed);
  EXPECT_EQ(sample(*grown.train, 47), sample(*rest.train, 0));
  EXPECT_EQ(sample(*grown.train, 99), sample(*rest.train, 52));
  // A budget within the last started epoch adds nothing.
  EXPECT_EQ(make_gpt_data({{store}}, options_of(8, {{45, 0, 0}, {47, 0, 0}})).train->size(), 47);
}

TEST(SampleSplits, StoresBudgetsOnlyIfNeeded) {
  const SampleBudget first{100, 10, 0};
  EXPECT_THAT(extend_budgets({}, first), ElementsAre(first));
  EXPECT_THAT(extend_budgets({first}, first), ElementsAre(first));
  EXPECT_THAT(extend_budgets({first}, {50, 10, 0}), ElementsAre(first));
  const SampleBudget more_validation{50, 11, 0};
  EXPECT_THAT(extend_budgets({first}, more_validation), ElementsAre(first, more_validation));
}

TEST(SampleSplits, BlendsCorporaByWeight) {
  const auto low = counting_store({500}, 0), middle = counting_store({700}, 10'000),
             high = counting_store({900}, 20'000);
  const auto options = options_of(8, {{200, 0, 0}});
  const auto data = make_gpt_data({{low, 3}, {middle, 5}, {high, 2}}, options);
  ASSERT_EQ(data.train->size(), 200);
  const auto alone = make_gpt_data({{middle}}, options_of(8, {{101, 0, 0}}));  // ceil(200 · 0.5 · 1.005)
  std::vector<std::int32_t> corpora;
  std::int64_t from_middle = 0;
  for (std::int64_t k = 0; k < 200; ++k) {
    const auto tokens = sample(*data.train, k);
    if (k < 12) corpora.push_back(tokens[0] / 10'000);
    if (tokens[0] / 10'000 == 1) {
      EXPECT_EQ(tokens, sample(*alone.train, from_middle++)) << k;
    }
  }
  EXPECT_THAT(corpora, ElementsAre(1, 0, 2, 1, 0, 1, 2, 1, 0, 1, 0, 1));
  EXPECT_EQ(from_middle, 100);
  EXPECT_THROW(sample(*data.train, 200), DataError);
}

TEST(SampleSplits, AGrowingBudgetKeepsABlendsOrder) {
  const std::vector<WeightedStore> stores = {{counting_store({500}), 3}, {counting_store({100}, 10'000), 5}};
  const auto first = make_gpt_data(stores, options_of(8, {{60, 0, 0}}));
  const auto grown = make_gpt_data(stores, options_of(8, {{60, 0, 0}, {300, 0, 0}}));
  EXPECT_EQ(samples(*grown.train, 60), samples(*first.train, 60));
  EXPECT_EQ(grown.train->size(), 300);
  EXPECT_EQ(sample(*grown.train, 299).size(), 9u);
}

TEST(SampleSplits, ChangesWeightsWithoutRepeatingOrLosingSamples) {
  const std::vector<WeightedStore> stores = {{counting_store({500}), 3}, {counting_store({300}, 10'000), 0}};
  GptDataOptions options = options_of(8, {{60, 0, 0}});
  options.later_stages = {{20, {1, 1}}, {40, {0, 1}}};
  const auto data = make_gpt_data(stores, options);
  ASSERT_EQ(data.train->size(), 60);
  const auto first = make_gpt_data({stores[0]}, options_of(8, {{31, 0, 0}}));  // ceil(30 · 1.005)
  const auto second = make_gpt_data({stores[1]}, options_of(8, {{31, 0, 0}}));
  std::int64_t counts[2] = {};
  for (std::int64_t k = 0; k < 60; ++k) {
    const auto tokens = sample(*data.train, k);
    const std::size_t corpus = tokens[0] >= 10'000 ? 1 : 0;
    EXPECT_EQ(tokens, sample(*(corpus == 0 ? first : second).train, counts[corpus]++)) << k;
    EXPECT_EQ(counts[1], k < 20 ? 0 : k < 40 ? (k - 19) / 2 : k - 29) << k;
  }
  EXPECT_EQ(counts[0], 30);
  EXPECT_EQ(attributes_of(stores, options).get<std::string>("data.stages"), "from 20: 1 1, from 40: 0 1");
  // Validation has the weights of the first stage, and needs no text of the other corpora.
  options.budgets = {{60, 5, 0}};
  options.split_fractions = parse_split("9,1");
  options.split_by = SplitBy::tokens;
  EXPECT_EQ(samples(*make_gpt_data({stores[0], {counting_store({20}, 10'000), 0}}, options).valid, 5).size(), 5u);
  // A longer run keeps the order.
  options = options_of(8, {{60, 0, 0}, {90, 0, 0}});
  options.later_stages = {{20, {1, 1}}, {40, {0, 1}}};
  EXPECT_EQ(samples(*make_gpt_data(stores, options).train, 60), samples(*data.train, 60));
}

TEST(SampleSplits, BlendsManyCorporaWithFewSamplesEach) {
  std::vector<WeightedStore> stores;
  for (std::int32_t i = 0; i < 300; ++i) stores.push_back({counting_store({20}, 100 * i), 1.0 + i % 7});
  for (const std::int64_t need : {1, 2, 150, 301, 1000}) {
    const auto data = make_gpt_data(stores, options_of(8, {{need, 0, 0}}));
    EXPECT_EQ(samples(*data.train, need).size(), static_cast<std::size_t>(need));
  }
}

TEST(SampleSplits, RefusesACorpusTooSmallForASplitThatIsNeeded) {
  GptDataOptions options = options_of(8, {{4, 4, 0}});
  options.split_fractions = parse_split("969,30,1");
  const auto store = counting_store({5, 9, 2, 14, 7});
  EXPECT_THAT(error_of<DataError>({{store}}, options),
              AllOf(HasSubstr("the validation split of memory has 0 tokens in 0 documents (of 37 in 5)"),
                    HasSubstr("<seq_length> 8 takes 9"), HasSubstr("<split_by> tokens"), HasSubstr("<split>,")));
  options.budgets = {{4, 0, 0}};
  EXPECT_EQ(error_of<DataError>({{store}}, options), "nothing was thrown");
  EXPECT_THAT(error_of<DataError>({{counting_store({})}}, options), HasSubstr("0 tokens"));
  // One sample takes s + 1 tokens.
  EXPECT_THAT(error_of<DataError>({{counting_store({8})}}, options_of(8, {{1, 0, 0}})), HasSubstr("8 tokens"));
  EXPECT_EQ(make_gpt_data({{counting_store({9})}}, options_of(8, {{1, 0, 0}})).train->size(), 1);
}

/// A corpus with ids above the maximum in its header.
class MislabeledStore final : public TokenStore {
 public:
  explicit MislabeledStore(std::shared_ptr<const TokenStore> store) : store_(std::move(store)), info_(store_->info()) {
    info_.vocabulary_size = 3;
    info_.max_id = 2;
  }
  const std::string& name() const override { return store_->name(); }
  const CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return store_->document_offsets(); }
  TokenSpan tokens(std::int64_t first, std::int64_t count) const override { return store_->tokens(first, count); }

 private:
  std::shared_ptr<const TokenStore> store_;
  CorpusInfo info_;
};

TEST(SampleSplits, ChecksEveryToken) {
  const auto data =
      make_gpt_data({{std::make_shared<MislabeledStore>(counting_store({5}))}}, options_of(4, {{1, 0, 0}}));
  EXPECT_THAT(test::message_of<DataError>([&] { sample(*data.train, 0); }),
              HasSubstr("token 3 is 3, not in the vocabulary of 3 ids"));
}

TEST(GptDataAttributes, IncludeAllInputsOfTheOrder) {
  const std::vector<WeightedStore> stores = {{counting_store({500}), 3}, {counting_store({100}), 0.1}};
  const Attributes attributes = attributes_of(stores, options_of(8, {}));
  EXPECT_EQ(
      attributes,
      (Attributes{{"data.corpora", fmt::format("{}*3 {}*0.10000000000000001", stores[0].store->info().content_digest,
                                               stores[1].store->info().content_digest)},
                  {"data.tokenizer", "c0"},
                  {"data.seed", "1234"},
                  {"data.sequence_length", "8"},
                  {"data.sampling", "shuffled"},
                  {"data.split", "1,0,0 by documents"}}));
  EXPECT_EQ(sequence_length_from(attributes), 8);
  EXPECT_THROW(sequence_length_from({{"data.sequence_length", "0"}}), CheckpointError);
  EXPECT_THROW(sequence_length_from({}), CheckpointError);
}

}  // namespace
}  // namespace trireme::data
