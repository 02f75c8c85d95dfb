#include <gtest/gtest.h>

#include <vector>

#include "src/base/error.hpp"
#include "src/plan/step/work_time.hpp"

namespace trireme::plan {
namespace {

using Kind = OverlapStep::Kind;

/// A backward of `buckets` equal steps, each followed by the start of its bucket's reduction, and the wait for all.
std::vector<OverlapStep> backward(int buckets, double compute, double communication) {
  std::vector<OverlapStep> steps;
  for (int b = 0; b < buckets; ++b) {
    steps.push_back({compute / buckets, Kind::start, b, communication / buckets});
  }
  for (int b = 0; b < buckets; ++b) steps.push_back({0, Kind::wait, b, 0});
  return steps;
}

TEST(CriticalPath, ExposesTheLastBucketIfComputeIsLonger) {
  EXPECT_DOUBLE_EQ(critical_path(backward(8, 16, 8)).time, 16 + 1);
  EXPECT_DOUBLE_EQ(critical_path(backward(1, 16, 8)).time, 24);
}

TEST(CriticalPath, StartsWithTheFirstStepIfCommunicationIsLonger) {
  EXPECT_DOUBLE_EQ(critical_path(backward(8, 8, 32)).time, 1 + 32);
}

TEST(CriticalPath, WaitsOnlyForRequiredCommunication) {
  // Three gathers of 2 in sequence; the forward waits for each in turn and computes 1 after it.
  std::vector<OverlapStep> forward = {{0, Kind::start, 0, 2}, {0, Kind::start, 1, 2}, {0, Kind::start, 2, 2}};
  for (int b = 0; b < 3; ++b) forward.push_back({b == 0 ? 0.0 : 1.0, Kind::wait, b, 0});
  forward.push_back({1, Kind::start, 3, 0});
  EXPECT_DOUBLE_EQ(critical_path(forward).time, 7);
  // Without overlap it first waits for all.
  for (int b = 0; b < 3; ++b) forward[3 + static_cast<std::size_t>(b)].compute = 0;
  forward.back().compute = 3;
  EXPECT_DOUBLE_EQ(critical_path(forward).time, 9);
}

TEST(CriticalPath, RefusesAWaitWithoutAStart) {
  const std::vector<OverlapStep> steps = {{1, Kind::wait, 0, 0}};
  EXPECT_THROW(critical_path(steps), ConfigError);
}

}  // namespace
}  // namespace trireme::plan
