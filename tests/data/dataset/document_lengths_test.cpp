#include "src/data/dataset/document_lengths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::data {
namespace {

TEST(DocumentLengths, AreExactWhereTheyAreShort) {
  DocumentLengths odd, lengths;
  EXPECT_EQ(odd.quantile(0.5), 0);
  EXPECT_TRUE(odd.bins().empty());
  for (std::int64_t length = 1; length <= 4095; length += 2) odd.add(length);
  for (std::int64_t length = 0; length <= 4094; length += 2) lengths.add(length);
  lengths.add(odd);
  EXPECT_EQ(lengths.documents(), 4096);
  EXPECT_EQ(lengths.tokens(), 4095 * 2048);
  EXPECT_EQ(lengths.mean(), 2047.5);
  EXPECT_EQ(lengths.quantile(0), 0);
  EXPECT_EQ(lengths.quantile(0.25), 1023);
  EXPECT_EQ(lengths.quantile(0.5), 2047);
  EXPECT_EQ(lengths.quantile(1), 4095);
  const std::vector<DocumentLengths::Bin> bins = lengths.bins();
  ASSERT_EQ(bins.size(), 13u);
  EXPECT_EQ(bins[0].last, 0);
  EXPECT_EQ(bins[12].first, 2048);
  EXPECT_EQ(bins[12].last, 4095);
  EXPECT_EQ(bins[12].documents, 2048);
  EXPECT_EQ(bins[12].tokens, (2048 + 4095) * 1024);
}

TEST(DocumentLengths, OfAnySizeKeepTwelveBits) {
  for (std::int64_t length = 4096; length < (std::int64_t{1} << 40); length = length * 3 + 1) {
    DocumentLengths lengths;
    lengths.add(1);
    lengths.add(length);
    lengths.add(length + length / 4);
    const std::int64_t middle = lengths.quantile(0.5);
    EXPECT_LE(middle, length);
    EXPECT_GT(middle, length - length / 2048 - 1) << length;
    EXPECT_EQ(lengths.greatest(), length + length / 4);
  }
}

}  // namespace
}  // namespace trireme::data
