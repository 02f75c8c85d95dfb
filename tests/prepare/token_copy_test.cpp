#include "src/prepare/token_copy.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "src/base/hash.hpp"
#include "tests/prepare/disk.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::prepare {
namespace {

using testing::HasSubstr;

TEST(TokenCopy, PutsTheDigestsOfAllRanksInTheOrderOfTheBlocks) {
  const std::string a(32, 'a'), b(32, 'b'), c(32, 'c');
  const TokenBlocks blocks{.begin = 0, .token_bytes = 2, .block_tokens = 4, .tokens = 10};
  EXPECT_EQ(digests_of(blocks, {"2 " + c + "\n", "0 " + a + b + "\n"}), a + b + c);
  EXPECT_THAT(test::message_of<DataError>([&] {
                digests_of(blocks, {"0 " + a + b + "\n", "3 \n"});
              }),
              HasSubstr("did not write all of the 3 blocks"));
}

/// Three parts of 3, 6 and 4 bytes as tokens, in blocks of 4 tokens.
TEST(TokenCopy, CopiesAPartOnceItsBlocksAreComplete) {
  const test::TemporaryDirectory folder;
  const std::vector<std::string> paths{folder / "a", folder / "b", folder / "c"};
  const TokenCopy copy(disk, paths, folder.path());
  copy.create_files();
  std::int32_t id = 0;
  std::int64_t begin = 0;
  const auto make = [&](std::size_t number, int tokens) {
    const auto part = disk.corpora->create_part(paths[number], 257, false);
    for (int i = 0; i < tokens; ++i, ++id) part->append({&id, 1});
    part->finish({});
    copy.place(number, {.first = 0, .begin = begin});
    copy.place(number + 1, {.first = 0, .begin = begin += tokens});
  };
  TokenBlocks blocks{.begin = 10, .token_bytes = 2, .block_tokens = 4, .tokens = 1000};
  EXPECT_FALSE(copy.copy_part(blocks, 0));
  make(0, 3);
  EXPECT_FALSE(copy.copy_part(blocks, 0)) << "its block lacks a token";
  make(1, 6);
  std::vector<std::string> results;
  results.push_back(copy.copy_part(blocks, 0).value());
  EXPECT_FALSE(copy.copy_part(blocks, 1)) << "its second block lacks tokens";
  make(2, 4);
  results.push_back(copy.copy_part(blocks, 1).value());
  EXPECT_FALSE(copy.copy_part(blocks, 2)) << "nothing says that the last block ends there";
  blocks.tokens = begin;
  results.push_back(copy.copy_part(blocks, 2).value());

  const auto file = disk.work->open(copy.target(), Access::read);
  EXPECT_EQ(file->size_bytes(), 10 + 13 * 2);
  std::vector<std::uint16_t> tokens(13);
  file->read(10, {reinterpret_cast<char*>(tokens.data()), tokens.size() * 2});
  for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], i);
  std::string digests;
  for (std::size_t i = 0; i < 13; i += 4) digests += digest(&tokens[i], std::min<std::size_t>(4, 13 - i) * 2);
  EXPECT_EQ(digests_of(blocks, results), digests);
}

}  // namespace
}  // namespace trireme::prepare
