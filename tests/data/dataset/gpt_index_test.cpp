#include "src/data/dataset/gpt_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "src/base/error.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// An index over documents of the given sizes, and the arrays it refers to.
struct Indexed {
  Indexed(const std::vector<std::int64_t>& document_sizes, std::int64_t sequence_length, std::int64_t samples,
          std::uint32_t seed)
      : sizes(document_sizes),
        offsets(offsets_of(document_sizes)),
        index({offsets, 0, static_cast<std::int64_t>(sizes.size()), 0, offsets.back()}, sequence_length, samples,
              seed) {}

  static std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> offsets(sizes.size() + 1);
    std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
    return offsets;
  }

  Pairs positions() const {
    Pairs result;
    for (std::int64_t j = 0; j <= index.size(); ++j) {
      result.emplace_back(index.position(j).entry, index.position(j).offset);
    }
    return result;
  }

  std::vector<std::int64_t> order() const {
    std::vector<std::int64_t> result;
    for (std::int64_t j = 0; j < index.size(); ++j) result.push_back(index.shuffled(j));
    return result;
  }

  std::vector<std::int64_t> sizes, offsets;
  GptIndex index;
};

/// Finds the starts of samples as Megatron-LM does: walks the documents, s + 1 tokens a sample, one of them shared.
Pairs walk(const Indexed& indexed, std::int64_t sequence_length) {
  Pairs result = {{0, 0}};
  std::size_t entry = 0;
  std::int64_t offset = 0;
  for (std::int64_t sample = 0; sample < indexed.index.size(); ++sample) {
    for (std::int64_t remaining = sequence_length + 1; remaining != 0;) {
      const std::int64_t length = indexed.sizes[indexed.index.document_order()[entry]] - offset;
      remaining -= length;
      if (remaining <= 0) {
        offset += remaining + length - 1;
        remaining = 0;
      } else {
        ++entry;
        offset = 0;
      }
    }
    result.emplace_back(static_cast<std::int64_t>(entry), offset);
  }
  return result;
}

TEST(GptIndex, ReproducesMegatronsOrderInOneEpoch) {
  const Indexed indexed({5, 9, 2, 14, 7}, 8, 4, 1234);
  EXPECT_EQ(indexed.index.epochs(), 1);
  EXPECT_THAT(indexed.index.document_order(), ElementsAre(4, 0, 1, 2, 3));
  EXPECT_EQ(indexed.positions(), (Pairs{{0, 0}, {1, 1}, {2, 4}, {4, 1}, {4, 9}}));
  EXPECT_THAT(indexed.order(), ElementsAre(2, 1, 3, 0));
}

TEST(GptIndex, SeparatesALastEpochThatIsMostlyUnused) {
  const Indexed indexed({5, 9, 2, 14, 7}, 8, 5, 1234);
  EXPECT_EQ(indexed.index.epochs(), 2);
  EXPECT_THAT(indexed.index.document_order(), ElementsAre(4, 0, 1, 2, 3, 3, 2, 1, 0, 4));
  EXPECT_EQ(indexed.positions(),
            (Pairs{{0, 0}, {1, 1}, {2, 4}, {4, 1}, {4, 9}, {5, 3}, {5, 11}, {7, 3}, {8, 2}, {9, 5}}));
  EXPECT_THAT(indexed.order(), ElementsAre(2, 0, 3, 1, 5, 8, 4, 6, 7));
}

TEST(GptIndex, ShufflesALastEpochThatIsMostlyUsedWithTheOthers) {
  const Indexed indexed({30, 25, 40, 13, 52, 8, 21}, 8, 45, 1234);
  EXPECT_EQ(indexed.index.epochs(), 2);
  EXPECT_THAT(indexed.index.document_order(), ElementsAre(5, 3, 0, 4, 6, 2, 2, 0, 1, 1, 4, 5, 6, 3));
  const auto order = indexed.order();
  EXPECT_EQ(order.size(), 47u);
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 5), ElementsAre(21, 31, 32, 8, 6));
}

TEST(GptIndex, StartsMatchASequentialScan) {
  for (const std::int64_t sequence_length : {1, 2, 3, 7, 16, 36}) {
    for (const std::int64_t samples : {1, 5, 40, 200}) {
      const Indexed indexed({5, 9, 2, 14, 7}, sequence_length, samples, 99);
      EXPECT_EQ(indexed.positions(), walk(indexed, sequence_length)) << sequence_length << ' ' << samples;
    }
  }
}

TEST(GptIndex, PassesOverDocumentsWithoutTokens) {
  const Indexed indexed({0, 4, 0, 11, 3, 0}, 6, 7, 99);
  EXPECT_THAT(indexed.index.document_order(), ElementsAre(5, 1, 0, 0, 1, 4, 0, 5, 4, 5, 4, 2, 2, 3, 2, 3, 3, 1));
  EXPECT_THAT(indexed.order(), ElementsAre(1, 0, 2, 5, 4, 7, 6, 3));
  Pairs expected = walk(indexed, 6);
  expected[0] = {1, 0};  // the walk starts at the empty document before it
  EXPECT_EQ(indexed.positions(), expected);
}

TEST(GptIndex, ContainsEverySampleOnceAndAtLeastTheRequestedNumber) {
  for (const std::int64_t samples : {1, 2, 3, 4, 5, 8, 9, 13, 100, 1000}) {
    const Indexed indexed({5, 9, 2, 14, 7}, 8, samples, 1);
    const auto order = indexed.order();
    EXPECT_GE(indexed.index.size(), samples);
    EXPECT_LT((indexed.index.epochs() - 1) * 37 - 1, samples * 8);  // one epoch fewer is not enough
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), order.size());
    EXPECT_EQ(*std::max_element(order.begin(), order.end()), indexed.index.size() - 1);
  }
}

TEST(GptIndex, RefusesMoreTokensThanCanBeCounted) {
  EXPECT_THROW(Indexed({100}, 1000, INT64_MAX / 100, 1), ConfigError);
}

}  // namespace
}  // namespace trireme::data
