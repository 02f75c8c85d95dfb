// Peaks of devices for the MFU, and the iterations that a profiler records.
#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "src/train/timing/device_peak.hpp"
#include "src/train/timing/step_profiler.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::train {
namespace {

TEST(DevicePeak, IsFoundByTheNameFromTheDriver) {
  const auto peak = [](const char* name) { return find_peak(name).value_or(DevicePeak{}).tflops; };
  EXPECT_EQ(peak("GPU 1 (NVIDIA H200, 139 GiB, compute capability 9.0, PCI 0000:1b:00.0)"), 989.4);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3"), 989.4);
  EXPECT_EQ(peak("NVIDIA H100 PCIe"), 756);
  EXPECT_EQ(peak("NVIDIA GB200"), 2500);
  EXPECT_EQ(peak("NVIDIA B200"), 2250);
  EXPECT_EQ(peak("NVIDIA A100-SXM4-80GB"), 312);
  EXPECT_EQ(peak("NVIDIA L40S"), 362.1);
  EXPECT_EQ(peak("Tesla V100-SXM2-32GB"), 125);
  EXPECT_EQ(peak("NVIDIA GeForce GTX 1080"), 0);
  EXPECT_EQ(peak("2 threads, AVX2"), 0);
}

TEST(DevicePeak, IsGivenByNameOrNumber) {
  EXPECT_EQ(parse_peak("A100").tflops, 312);
  EXPECT_EQ(parse_peak("123.5").tflops, 123.5);
  for (const char* text : {"A1000", "", "-1", "0", "12x", "nan"}) {
    EXPECT_THAT(test::message_of<ConfigError>([&] { parse_peak(text); }), testing::HasSubstr("nor one of GB200, B200"))
        << text;
  }
}

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
