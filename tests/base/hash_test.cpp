#include "src/base/hash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace trireme {
namespace {

TEST(Fnv1a, MatchesItsDefinition) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
}

// Vigna's splitmix64.c seeded with 1234567.
TEST(SplitMix64, MatchesThePublishedSequence) {
  EXPECT_EQ(splitmix64(1234567, 0), 6457827717110365317u);
  EXPECT_EQ(splitmix64(1234567, 1), 3203168211198807973u);
  EXPECT_EQ(splitmix64(1234567, 2), 9817491932198370423u);
}

TEST(Digest, InPartsEqualsTheWhole) {
  const std::string text(100'000, 'x');
  Digest pieces;
  pieces.update(text.data(), 1);
  pieces.update(text.data() + 1, text.size() - 1);
  EXPECT_EQ(pieces.hex(), digest(text.data(), text.size()));
  EXPECT_EQ(pieces.hex().size(), 32u);
}

TEST(Digest, ChangesWithOneBit) {
  std::string text(1000, 'x');
  const std::string before = digest(text.data(), text.size());
  text[500] ^= 1;
  EXPECT_NE(digest(text.data(), text.size()), before);
}

}  // namespace
}  // namespace trireme
