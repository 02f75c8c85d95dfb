#include "src/data/dataset/next_token_labels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/data/dataset/gpt_samples.hpp"
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

}  // namespace
}  // namespace trireme::data
