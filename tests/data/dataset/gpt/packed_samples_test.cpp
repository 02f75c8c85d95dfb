#include "src/data/dataset/gpt/packed_samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/base/hash.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t s = 16;

/// Documents of these sizes with consecutive ids; of each the tokens from the third on are learned.
std::shared_ptr<MemoryTokenStore> conversations(const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<LearnedRange> learned;
  std::int32_t id = 0;
  for (const std::int64_t size : sizes) {
    if (size > 2) learned.push_back({id + 2, id + size});
    documents.emplace_back();
    for (std::int64_t i = 0; i < size; ++i) documents.back().push_back(id++);
  }
  auto store = std::make_shared<MemoryTokenStore>(100'000, documents);
  store->set_learned_ranges(learned);
  return store;
}

DocumentRange range_of_all(const TokenStore& store) {
  return {store.document_offsets(), 0, store.documents(), 0, store.token_count(), "samples"};
}

PackedSamples packed(const std::shared_ptr<MemoryTokenStore>& store, std::uint32_t seed = 1) {
  return {CheckedTokens(store, 100'000), range_of_all(*store), s, seed};
}

TEST(PackedSamples, HoldEachDocumentOnceAndLabelItsLearnedTokens) {
  std::vector<std::int64_t> sizes;
  for (std::uint64_t i = 0; i < 200; ++i) sizes.push_back(static_cast<std::int64_t>(1 + splitmix64(3, i) % 25));
  const auto store = conversations(sizes);
  const PackedSamples samples = packed(store);
  std::set<std::int64_t> labels, documents;
  const SampleBuffer buffer(s, {.positions = true, .first_visible = true, .length = true});
  const SampleView& view = buffer.view();
  std::int64_t padding = 0;
  for (std::int64_t index = 0; index < samples.size(); ++index) {
    samples.read(index, view);
    padding += s - view.length[0];
    for (std::size_t i = 0; i < s; ++i) {
      const auto position = static_cast<std::int32_t>(i);
      if (i >= static_cast<std::size_t>(view.length[0])) {
        EXPECT_LT(view.labels[i], 0);
        EXPECT_EQ(view.tokens[i], 0);
        EXPECT_EQ(view.first_visible[i], std::min(view.length[0], position));
        continue;
      }
      EXPECT_EQ(view.first_visible[i] + view.positions[i], position);
      // Positions count from the beginning of the document, whose ids are consecutive.
      const auto begin = view.tokens[i] - view.positions[i];
      EXPECT_TRUE(std::ranges::binary_search(store->document_offsets(), begin));
      if (view.positions[i] == 0) {
        EXPECT_TRUE(documents.insert(begin).second) << "document at " << begin;
      }
      if (view.labels[i] < 0) continue;
      EXPECT_EQ(view.labels[i], view.tokens[i] + 1);
      EXPECT_TRUE(labels.insert(view.labels[i]).second);
    }
  }
  std::set<std::int64_t> expected_labels, expected_documents;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    if (size > 2) expected_documents.insert(begin);
    for (std::int64_t i = 2; i < std::min(size, s + 1); ++i) expected_labels.insert(begin + i);
    begin += size;
  }
  EXPECT_EQ(labels, expected_labels);
  EXPECT_EQ(documents, expected_documents);
  EXPECT_LT(padding, samples.size() * s / 10) << "of " << samples.size() << " samples";
}

TEST(PackedSamples, TakeTheLeastSufficientRoom) {
  const PackedSamples samples = packed(conversations({10, 9, 8, 7, 30}));  // 17 + 10 + 7 + 9 + 8: three samples
  EXPECT_EQ(samples.size(), 3);
  std::vector<std::vector<std::int64_t>> starts;
  for (std::int64_t i = 0; i < 3; ++i) starts.push_back(samples.document_starts(i));
  std::ranges::sort(starts);
  EXPECT_THAT(starts, ElementsAre(ElementsAre(), ElementsAre(9), ElementsAre(10)));
}

TEST(PackedSamples, DependOnTheSeedAndTheEpoch) {
  std::vector<std::int64_t> sizes(40, 8);
  const auto store = conversations(sizes);
  const auto first_tokens = [&](std::uint32_t seed, std::int64_t first) {
    GptDataOptions options;
    options.sequence_length = s;
    options.seed = seed;
    options.split_fractions = {1, 0, 0};
    options.budgets = {{60, 0, 0}};
    const SampleSplits splits = make_gpt_data({{store}}, options);
    std::vector<std::int32_t> tokens;
    const SampleBuffer buffer(s, {});
    for (std::int64_t i = first; i < first + 20; ++i) {
      splits.train->read(i, buffer.view());
      tokens.push_back(buffer.view().tokens[0]);
    }
    return tokens;
  };
  const std::vector<std::int32_t> tokens = first_tokens(1, 0), next = first_tokens(1, 20);
  EXPECT_EQ(tokens, first_tokens(1, 0));
  EXPECT_NE(tokens, first_tokens(2, 0));
  EXPECT_NE(tokens, next);
  EXPECT_THAT(next, testing::UnorderedElementsAreArray(tokens));
}

TEST(PackedSamples, AreApartUnlessTheyAreJoined) {
  const auto store = conversations({10, 7});
  const auto text = std::make_shared<MemoryTokenStore>(
      100'000, std::vector<std::vector<std::int32_t>>{{1, 2}, std::vector<std::int32_t>(30, 3)});
  const auto fields = [&](const std::shared_ptr<const TokenStore>& corpus, bool positions, bool attention, bool apart) {
    GptDataOptions options;
    options.sequence_length = s;
    options.sampling = corpus == text ? Sampling::sequential : Sampling::shuffled;
    options.split_fractions = {1, 0, 0};
    options.budgets = {{1, 0, 0}};
    options.reset_positions = positions;
    options.reset_attention = attention;
    options.conversations_apart = apart;
    const SampleSplits splits = make_gpt_data({{corpus}}, options);
    const SampleBuffer buffer(s, {.positions = true, .first_visible = true});
    splits.train->read(0, buffer.view());
    return std::pair(buffer.view().positions.back(), buffer.view().first_visible.back());
  };
  EXPECT_EQ(fields(store, false, false, true), std::pair(5, 10));
  EXPECT_EQ(fields(store, false, false, false), std::pair(15, 0));
  EXPECT_EQ(fields(store, true, false, false), std::pair(5, 0));
  EXPECT_EQ(fields(store, true, true, false), std::pair(5, 10));
  EXPECT_EQ(fields(text, false, false, true), std::pair(15, 0));
  EXPECT_EQ(fields(text, false, true, true), std::pair(15, 2));
  EXPECT_EQ(fields(text, true, true, true), std::pair(13, 2));
}

TEST(PackedSamples, NeedALearnedToken) {
  const auto store = conversations({2, 1, 0});
  EXPECT_TRUE(packable_documents(*store, range_of_all(*store), s).empty());
  EXPECT_THAT(test::message_of<DataError>([&] { packed(store); }),
              HasSubstr("samples have no learned token in the first 17 tokens of 3 documents"));
  GptDataOptions options;
  options.sequence_length = s;
  EXPECT_FALSE(has_samples({{store}}, options, Split::train));
  EXPECT_TRUE(has_samples({{conversations({2, 20}), 1}, {store, 0}}, options, Split::train)) << "of a later stage";
  options.fim.emplace();
  EXPECT_THAT(test::message_of<ConfigError>([&] { make_gpt_data({{store}}, options); }), HasSubstr("<fim_rate>"));
}

TEST(SequentialSamples, LabelLearnedTokens) {
  const auto store = conversations({5, 20});
  const SequentialSamples samples({store, 100'000}, 8, Remainder::kept);
  const SampleBuffer buffer(8, {});
  samples.read(0, buffer.view());
  EXPECT_THAT(buffer.view().labels, ElementsAre(-1, 2, 3, 4, -1, -1, 7, 8));
  samples.read(2, buffer.view());
  EXPECT_THAT(buffer.view().labels, ElementsAre(17, 18, 19, 20, 21, 22, 23, 24));
  EXPECT_EQ(learned_tokens(*store, 1, 9), 5);
  EXPECT_EQ(documents_of(*store, Split::train, {0.5, 0.5, 0}, SplitBy::automatic).tokens(), 5);
}

}  // namespace
}  // namespace trireme::data
