#include "src/data/dataset/gpt_samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/fakes/memory_token_store.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;

TEST(NextTokenLabels, AreTheTextOneTokenOnAndTheLastTokenIsOnlyALabel) {
  const SampleBuffer sample(4, {});
  make_next_token_labels(std::vector{3, 1, 4, 1, 5}, sample.view());
  EXPECT_THAT(sample.view().tokens, ElementsAre(3, 1, 4, 1));
  EXPECT_THAT(sample.view().labels, ElementsAre(1, 4, 1, 5));
}

TEST(NextTokenLabels, AreNegativeWhereTheTextEndsEarly) {
  const SampleBuffer sample(4, {});
  make_next_token_labels(std::vector{3, 1, 4, -1, -1}, sample.view());
  EXPECT_THAT(sample.view().tokens, ElementsAre(3, 1, 4, 0));
  EXPECT_THAT(sample.view().labels, ElementsAre(1, 4, -1, -1));
  // The last token of all is missing: every position is an input, and the last has nothing to predict.
  make_next_token_labels(std::vector{3, 1, 4, 1, -1}, sample.view());
  EXPECT_THAT(sample.view().tokens, ElementsAre(3, 1, 4, 1));
  EXPECT_THAT(sample.view().labels, ElementsAre(1, 4, 1, -1));
}

TEST(NextTokenLabels, NeedOneTokenMoreThanPositions) {
  const SampleBuffer sample(4, {});
  for (const std::size_t count : {0, 4, 6}) {
    EXPECT_THROW(make_next_token_labels(std::vector<std::int32_t>(count), sample.view()), ShapeError);
  }
}

TEST(SequentialSamples, KeepTheRemainderAsASampleThatEndsEarly) {
  const auto samples_of = [](std::int64_t tokens, Remainder remainder) {
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < tokens; ++i) ids.push_back(i);
    CorpusInfo info;
    info.vocabulary_size = 20;
    return SequentialSamples(
        {std::make_shared<MemoryTokenStore>(info, std::vector<std::vector<std::int32_t>>{ids}), 20}, 4, remainder);
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
  // Nine tokens are two whole samples, ten leave one label.
  EXPECT_EQ(samples_of(9, Remainder::kept).size(), 2);
  EXPECT_EQ(samples_of(10, Remainder::kept).size(), 3);
  EXPECT_EQ(samples_of(1, Remainder::kept).size(), 0);
}

/// A sample of a text whose token 0 ends documents, and what Megatron-LM makes of it (get_ltor_masks_and_position_ids
/// of release 23.06, and of August 2026): positions, first visible keys, and positions whose loss counts.
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

/// The text's documents, and behind them the label of the last token.
std::shared_ptr<MemoryTokenStore> store_of(const PackedText& text) {
  std::vector<std::vector<std::int32_t>> documents(1);
  for (const std::int32_t token : text.tokens) {
    documents.back().push_back(token);
    if (token == 0) documents.emplace_back();
  }
  documents.back().push_back(7);
  CorpusInfo info;
  info.vocabulary_size = 40;
  return std::make_shared<MemoryTokenStore>(info, documents);
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

// A token 0 within a document ends nothing: the offsets decide. Marks that nobody asked for change nothing.
TEST(Documents, AreThoseOfTheOffsetsWhateverTheTokens) {
  CorpusInfo info;
  info.vocabulary_size = 40;
  const std::vector<std::vector<std::int32_t>> documents = {{5, 0, 6}, {}, {8, 9, 0, 10}, {11, 12, 13}};
  const auto store = std::make_shared<MemoryTokenStore>(info, documents);
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

}  // namespace
}  // namespace trireme::data
