#include "src/data/dataset/gpt_samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "src/base/error.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/sample_text.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;

/// A corpus of one document, token i = i.
std::shared_ptr<const MemoryTokenStore> counting_corpus(std::int64_t tokens) {
  std::vector<std::int32_t> document(static_cast<std::size_t>(tokens));
  std::iota(document.begin(), document.end(), 0);
  return std::make_shared<MemoryTokenStore>(tokens, std::vector<std::vector<std::int32_t>>{document});
}

TEST(NextTokenLabels, AreNegativeBeyondTheEndOfTheText) {
  const SampleBuffer sample(4, {});
  make_next_token_labels(std::vector{3, 1, 4, -1, -1}, sample.view());
  EXPECT_THAT(sample.view().tokens, ElementsAre(3, 1, 4, 0));
  EXPECT_THAT(sample.view().labels, ElementsAre(1, 4, -1, -1));
  // Without the final token every position is an input, and the last has no label.
  make_next_token_labels(std::vector{3, 1, 4, 1, -1}, sample.view());
  EXPECT_THAT(sample.view().tokens, ElementsAre(3, 1, 4, 1));
  EXPECT_THAT(sample.view().labels, ElementsAre(1, 4, 1, -1));
}

TEST(SequentialSamples, KeepTheRemainderAsASampleThatEndsEarly) {
  const auto samples_of = [](std::int64_t tokens, Remainder remainder) {
    return SequentialSamples({counting_corpus(tokens), 20}, 4, remainder);
  };
  EXPECT_EQ(samples_of(11, Remainder::dropped).size(), 2);
  const SequentialSamples kept = samples_of(11, Remainder::kept);
  ASSERT_EQ(kept.size(), 3);
  const SampleBuffer sample(4, {});
  kept.read(1, sample.view());
  EXPECT_THAT(sample.view().labels, ElementsAre(5, 6, 7, 8));
  kept.read(2, sample.view());
  EXPECT_THAT(sample.view().tokens, ElementsAre(8, 9, 10, 0));
  EXPECT_THAT(sample.view().labels, ElementsAre(9, 10, -1, -1));
  EXPECT_THROW(kept.read(3, sample.view()), DataError);
  // Nine tokens make two full samples, ten leave one label.
  EXPECT_EQ(samples_of(9, Remainder::kept).size(), 2);
  EXPECT_EQ(samples_of(10, Remainder::kept).size(), 3);
  EXPECT_EQ(samples_of(1, Remainder::kept).size(), 0);
}

/// A sample in which token 0 ends documents, and the output of Megatron-LM's get_ltor_masks_and_position_ids for it
/// (release 23.06, and August 2026): positions, first visible keys and the loss mask.
struct PackedText {
  std::vector<std::int32_t> tokens, positions, first_visible, loss_mask;
};
const std::vector<PackedText> packed_texts = {
    {{9, 37, 5, 17}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}},
    {{0, 29, 32, 36, 15, 23, 15, 15, 30, 19, 2, 0},
     {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
     {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
     {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}},
    {{27, 36, 7, 12, 19, 8, 22, 33, 0, 0, 28, 33, 13, 20, 19, 38},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 2, 3, 4, 5},
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 10, 10, 10, 10, 10},
     {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1}},
    {{6, 29, 33, 7, 11, 34, 26, 24, 32, 2, 31, 3, 20, 38, 0, 0},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0},
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
    {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 0, 0}},
    {{0}, {0}, {0}, {0}},
    {{21, 0, 0, 10, 22, 0, 25, 0, 37, 0, 19, 8, 18, 0, 0, 1, 0, 0, 3, 0, 38, 8},
     {0, 1, 0, 0, 1, 2, 0, 1, 0, 1, 0, 1, 2, 3, 0, 0, 1, 0, 0, 1, 0, 1},
     {0, 0, 2, 3, 3, 3, 6, 6, 8, 8, 10, 10, 10, 10, 14, 15, 15, 17, 18, 18, 20, 20},
     {1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1}}};

/// The text's documents, followed by the label of the last token.
std::shared_ptr<MemoryTokenStore> store_of(const PackedText& text) {
  std::vector<std::vector<std::int32_t>> documents(1);
  for (const std::int32_t token : text.tokens) {
    documents.back().push_back(token);
    if (token == 0) documents.emplace_back();
  }
  documents.back().push_back(7);
  return std::make_shared<MemoryTokenStore>(40, documents);
}

TEST(Documents, AreMarkedAsMegatronMarksThem) {
  for (const PackedText& text : packed_texts) {
    const auto s = static_cast<std::int64_t>(text.tokens.size());
    const SequentialSamples samples({store_of(text), 40}, s, Remainder::dropped, DocumentEnds::unlabelled);
    const SampleBuffer sample(s, {.positions = true, .first_visible = true});
    samples.read(0, sample.view());
    const auto list = [](std::span<const std::int32_t> values) {
      return std::vector<std::int32_t>(values.begin(), values.end());
    };
    EXPECT_EQ(list(sample.view().positions), text.positions);
    EXPECT_EQ(list(sample.view().first_visible), text.first_visible);
    std::vector<std::int32_t> loss_mask;
    for (const std::int32_t label : sample.view().labels) loss_mask.push_back(label >= 0 ? 1 : 0);
    EXPECT_EQ(loss_mask, text.loss_mask);
  }
}

// The offsets delimit documents; a token 0 does not. Fields that are not requested do not affect the labels.
TEST(Documents, AreThoseOfTheOffsetsWhateverTheTokens) {
  const std::vector<std::vector<std::int32_t>> documents = {{5, 0, 6}, {}, {8, 9, 0, 10}, {11, 12, 13}};
  const auto store = std::make_shared<MemoryTokenStore>(40, documents);
  const SampleBuffer sample(4, {.positions = true, .first_visible = true}), bare(4, {});
  const SequentialSamples unlabelled({store, 40}, 4, Remainder::dropped, DocumentEnds::unlabelled);
  unlabelled.read(0, sample.view());
  EXPECT_THAT(sample.view().positions, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(sample.view().first_visible, ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(sample.view().labels, ElementsAre(0, 6, -1, 9));
  unlabelled.read(1, sample.view());
  EXPECT_THAT(sample.view().positions, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(sample.view().labels, ElementsAre(0, 10, -1, 12));
  unlabelled.read(1, bare.view());
  EXPECT_THAT(bare.view().labels, ElementsAre(0, 10, -1, 12));
  const SequentialSamples labelled({store, 40}, 4);
  labelled.read(1, sample.view());
  EXPECT_THAT(sample.view().first_visible, ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(sample.view().labels, ElementsAre(0, 10, 11, 12));
}

// From PyTorch: torch.manual_seed(SEED); torch.randperm(10).
TEST(TorchPermutation, MatchesPyTorch) {
  EXPECT_THAT(torch_permutation(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(torch_permutation(10, 42), ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_THAT(torch_permutation(1, 3), ElementsAre(0));
  EXPECT_THROW(torch_permutation(std::int64_t{1} << 32, 0), ConfigError);
}

/// Samples of sequence length 2.
std::unique_ptr<SampleSource> samples(Sampling sampling, std::int32_t tokens, std::vector<SampleBudget> budgets) {
  GptDataOptions options;
  options.sequence_length = 2;
  options.split_fractions = parse_split("1");
  options.sampling = sampling;
  options.budgets = std::move(budgets);
  return std::move(make_gpt_data({{counting_corpus(tokens)}}, options).train);
}

TEST(CyclicSamples, ReadEachEpochInItsOwnOrder) {
  constexpr std::int64_t n = 10;  // samples of an epoch
  const auto epoch = samples(Sampling::shuffled, 2 * n + 1, {{n, 0, 0}});
  const auto source = samples(Sampling::cyclic, 2 * n + 1, {{3 * n, 0, 0}});
  ASSERT_EQ(epoch->size(), n);
  EXPECT_EQ(source->size(), 3 * n);
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    const std::int64_t place = torch_permutation(n, i / n)[static_cast<std::size_t>(i % n)];
    EXPECT_EQ(test::text_of(*source, i), test::text_of(*epoch, place)) << i;
  }
}

TEST(CyclicSamples, DoNotDependOnTheLengthOfTheRun) {
  const auto one = samples(Sampling::cyclic, 21, {{25, 0, 0}});
  const auto continued = samples(Sampling::cyclic, 21, {{7, 0, 0}, {25, 0, 0}});
  // Reading backwards evicts orders and makes them again.
  for (std::int64_t i = 24; i >= 0; --i) EXPECT_EQ(test::text_of(*one, i), test::text_of(*continued, i)) << i;
}

}  // namespace
}  // namespace trireme::data
