#include <gtest/gtest.h>

#include "src/comm/bus_bandwidth.hpp"

namespace trireme {
namespace {

// nccl-tests' doc/PERFORMANCE.md: the factors by which a ring's links carry more, or less, than the size.
TEST(BusFactor, MatchesNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);
  for (const Collective parts : {Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_DOUBLE_EQ(bus_factor(parts, 2), 0.5);
    EXPECT_DOUBLE_EQ(bus_factor(parts, 8), 0.875);
  }
  for (const Collective whole : {Collective::broadcast, Collective::send_receive}) {
    EXPECT_DOUBLE_EQ(bus_factor(whole, 2), 1);
    EXPECT_DOUBLE_EQ(bus_factor(whole, 8), 1);
  }
}

}  // namespace
}  // namespace trireme
