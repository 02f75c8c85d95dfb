#include "src/data/dataset/token_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/hash.hpp"

namespace trireme::data {
namespace {

CorpusInfo ids(std::int64_t vocabulary_size) {
  CorpusInfo info;
  info.vocabulary_size = vocabulary_size;
  return info;
}

std::vector<std::int32_t> read(const TokenStore& store, std::int64_t first, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  read_checked_tokens(store, store.info().vocabulary_size, first, tokens);
  return tokens;
}

TEST(MockStore, DependsOnlyOnSeedAndPosition) {
  const MockStore store(ids(1000), 7);
  EXPECT_EQ(store.documents(), 10'240);
  EXPECT_GT(store.token_count(), 19'000'000);
  const auto offsets = store.document_offsets();
  EXPECT_EQ(read(store, 0, 1)[0], static_cast<std::int32_t>(splitmix64(mix64(7), 0) % 999));
  // Every document ends with the end-of-document id, in later blocks too. Reads may cross blocks.
  for (const std::int64_t document : {0, 1, 511, 512, 513, 10'239}) {
    const auto d = static_cast<std::size_t>(document);
    const auto length = static_cast<std::size_t>(offsets[d + 1] - offsets[d]);
    ASSERT_GE(length, 1u);
    ASSERT_LE(length, 4095u);
    const std::vector<std::int32_t> tokens = read(store, offsets[d], length);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 999), 1) << document;
    EXPECT_EQ(tokens.back(), 999);
  }
  const std::int64_t period = offsets[512];
  EXPECT_EQ(read(store, period - 3, 6), read(store, 2 * period - 3, 6));
  EXPECT_EQ(read(store, period, 100), read(store, 0, 100));

  const MockStore again(ids(1000), 7), other(ids(1000), 8);
  EXPECT_EQ(again.info().content_digest, store.info().content_digest);
  EXPECT_EQ(read(again, 12'345, 100), read(store, 12'345, 100));
  EXPECT_NE(other.info().content_digest, store.info().content_digest);
  EXPECT_NE(read(other, 0, 100), read(store, 0, 100));
  EXPECT_THROW(MockStore(ids(1), 7), ConfigError);
}

}  // namespace
}  // namespace trireme::data
