#include "src/train/timing/device_peak.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::train {
namespace {

TEST(DevicePeak, IsFoundByTheDriversName) {
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

}  // namespace
}  // namespace trireme::train
