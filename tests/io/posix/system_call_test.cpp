#include "io/posix/system_call.hpp"

#include <gtest/gtest.h>

namespace trireme::io {
namespace {

TEST(SystemCall, IsRepeatedAfterSignalsButNotIndefinitely) {
  int calls = 0, interruptions = 3;
  const auto call = [&] {
    errno = EINTR;
    return ++calls > interruptions ? 7 : -1;
  };
  EXPECT_EQ(uninterrupted(call), 7);
  EXPECT_EQ(calls, 4);
  calls = 0;
  interruptions = 1000000;
  EXPECT_EQ(uninterrupted(call), -1);
  EXPECT_EQ(calls, 100);
  EXPECT_EQ(errno, EINTR);
}

}  // namespace
}  // namespace trireme::io
