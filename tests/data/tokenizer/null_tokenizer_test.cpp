#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {
namespace {

TEST(NullTokenizer, TakesAndGivesNumbers) {
  const auto tokenizer = make_null_tokenizer(50'257, 50'256);
  std::vector<std::int32_t> ids;
  tokenizer->encode(" 12\n0  50256\t7", ids);
  EXPECT_THAT(ids, testing::ElementsAre(12, 0, 50'256, 7));
  std::string text;
  tokenizer->decode(ids, text);
  EXPECT_EQ(text, "12 0 7 ");
  for (const char* bad : {"50257", "-1", "1,2", "x", "99999999999999999999"}) {
    EXPECT_THROW(tokenizer->encode(bad, ids), DataError) << bad;
  }
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{50'257}, text), DataError);
}

TEST(NullTokenizer, ComesBackFromItsPayloadAndFromNoOther) {
  const auto tokenizer = tokenizer_from_payload("null", make_null_tokenizer(300'000, 5)->payload());
  EXPECT_EQ(tokenizer->vocabulary_size(), 300'000);
  EXPECT_EQ(tokenizer->end_of_document(), 5);
  for (const char* bad :
       {"", "trireme ids 1\n", "trireme ids 1\n5 5\n", "trireme ids 1\n5 4\n ", "trireme ids 1\n05 4\n"}) {
    EXPECT_THROW(tokenizer_from_payload("null", bad), DataError) << bad;
  }
  EXPECT_THROW(make_null_tokenizer(0, 0), ConfigError);
  EXPECT_THROW(make_null_tokenizer(10, 10), ConfigError);
}

}  // namespace
}  // namespace trireme::data
