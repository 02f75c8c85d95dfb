#include "src/base/timer.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(DurationText, NamesTheTwoLargestUnits) {
  EXPECT_EQ(duration_text(0.4), "0 s");
  EXPECT_EQ(duration_text(59.6), "1 min 00 s");
  EXPECT_EQ(duration_text(725), "12 min 05 s");
  EXPECT_EQ(duration_text(12600), "3 h 30 min");
  EXPECT_EQ(duration_text(2 * 86400 + 3600), "2 d 1 h");
}

}  // namespace
}  // namespace trireme
