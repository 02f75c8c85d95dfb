#include "src/base/hash.hpp"

#include <gtest/gtest.h>

#include <string>

#include "src/base/philox.hpp"

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

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, MatchesThePublishedKnownAnswers) {
  EXPECT_EQ(philox4x32(0, {0, 0, 0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(0xffffffffffffffffu, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822u, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Digest, OfPartsEqualsTheDigestOfAllBytes) {
  const std::string text(100'000, 'x');
  Digest pieces;
  pieces.update(text.data(), 1);
  pieces.update(text.data() + 1, text.size() - 1);
  EXPECT_EQ(pieces.hex(), digest(text.data(), text.size()));
  EXPECT_EQ(pieces.hex().size(), 32u);
}

}  // namespace
}  // namespace trireme
