#include "src/prepare/token_copy.hpp"

#include <gmock/gmock.h>

#include "tests/support/message_of.hpp"

namespace trireme::prepare {
namespace {

using testing::HasSubstr;

TEST(TokenCopy, IsTheSameAsText) {
  const TokenCopy copy{{4096, 2, 1 << 20, 5'000'000}, {{0, 0}, {1, 2'500'000}}};
  const TokenCopy other = TokenCopy::from_text(copy.text());
  EXPECT_EQ(other.text(), copy.text());
  EXPECT_EQ(other.blocks.tokens, 5'000'000);
  ASSERT_EQ(other.taken.size(), 2u);
  EXPECT_EQ(other.taken[1].begin, 2'500'000);
}

TEST(TokenCopy, PutsTheDigestsOfAllRanksInTheOrderOfTheBlocks) {
  const std::string a(32, 'a'), b(32, 'b'), c(32, 'c');
  const TokenCopy copy{{0, 2, 4, 10}, {}};
  EXPECT_EQ(copy.digests({"2 " + c + "\n", "0 " + a + b + "\n"}), a + b + c);
  EXPECT_THAT(test::message_of<DataError>([&] {
                copy.digests({"0 " + a + b + "\n", "3 \n"});
              }),
              HasSubstr("did not write all of the 3 blocks"));
}

}  // namespace
}  // namespace trireme::prepare
