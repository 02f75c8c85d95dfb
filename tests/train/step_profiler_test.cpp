#include "src/train/timing/step_profiler.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Device final : ProfiledDevice {
  void start_profiler() override { calls.emplace_back("start"); }
  void stop_profiler() override { calls.emplace_back("stop"); }
  void begin_range(const char*) override {}
  void end_range() override {}
  std::vector<std::string> calls;
};

/// The profiler's calls, and the iterations between them, of a run from `first` to `last`.
std::vector<std::string> calls_of(std::int64_t start, std::int64_t end, std::int64_t first, std::int64_t last) {
  Device device;
  {
    StepProfiler profiler(device, start, end, first - 1);
    for (std::int64_t i = first; i <= last; ++i) {
      if (!device.calls.empty() && device.calls.back() != "stop") device.calls.push_back(std::to_string(i));
      profiler.after_step(i);
    }
  }
  return device.calls;
}

TEST(StepProfiler, RecordsTheIterationsBetween) {
  EXPECT_THAT(calls_of(10, 12, 1, 20), ElementsAre("start", "11", "12", "stop"));
  EXPECT_THAT(calls_of(0, 1, 1, 3), ElementsAre("start", "1", "stop"));
}

TEST(StepProfiler, EndsWithTheRun) { EXPECT_THAT(calls_of(2, 9, 1, 3), ElementsAre("start", "3", "stop")); }

TEST(StepProfiler, ARunThatResumesRecordsTheRest) {
  EXPECT_THAT(calls_of(2, 6, 5, 8), ElementsAre("start", "5", "6", "stop"));
  EXPECT_THAT(calls_of(2, 4, 5, 8), IsEmpty());
}

}  // namespace
}  // namespace trireme::train
