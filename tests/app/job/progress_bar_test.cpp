#include "src/app/job/progress_bar.hpp"

#include <gtest/gtest.h>

namespace trireme::app {
namespace {

TEST(ProgressLine, ShowsShareRateAndTimeLeft) {
  EXPECT_EQ(progress_line("reading", "MB", 12, 24, 2),
            "reading [############            ]  50%  12 of 24 MB  6.0 MB/s  2 s left");
  EXPECT_EQ(progress_line("reading", "MB", 0, 0, 0), "reading [########################] 100%  0 of 0 MB");
  EXPECT_EQ(progress_line("training", "iterations", 75, 100, 5, 50),
            "training [##################      ]  75%  75 of 100 iterations  5.0 iterations/s  5 s left");
}

}  // namespace
}  // namespace trireme::app
