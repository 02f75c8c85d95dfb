#include "src/base/parse_number.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace trireme {
namespace {

TEST(ParseNumber, AcceptsTheEntireTextOrNothing) {
  EXPECT_EQ(parse_number<int>("42"), 42);
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<double>("2.5e3"), 2500);
  for (const char* text : {"", " 42", "42 ", "+42", "4,2", "x", "-", "2147483648", "1.5"}) {
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << '"' << text << '"';
  }
  EXPECT_EQ(parse_number<std::uint32_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e999"), std::nullopt);
}

TEST(ParseNumber, ReturnsTheRemainder) {
  std::string_view text = "12,-3 rest";
  EXPECT_EQ(take_number<int>(text), 12);
  EXPECT_EQ(text, ",-3 rest");
  EXPECT_EQ(take_number<int>(text), std::nullopt);
  EXPECT_EQ(text, ",-3 rest");
  text.remove_prefix(1);
  EXPECT_EQ(take_number<int>(text), -3);
  EXPECT_EQ(text, " rest");
}

}  // namespace
}  // namespace trireme
