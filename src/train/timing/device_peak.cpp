#include "src/train/timing/device_peak.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::train {
namespace {

struct Entry {
  std::string_view name;  // substring of the driver's name
  double tflops;
};

// Dense peaks. Data sheets often print twice as much, with 2:4 sparsity. V100's is for fp16, as it has no bf16. A name
// that contains another precedes it.
constexpr auto peaks = std::to_array<Entry>({{"GB200", 2500},
                                             {"B200", 2250},
                                             {"GH200", 989.4},
                                             {"H200", 989.4},
                                             {"H100 PCIe", 756},
                                             {"H100 NVL", 835.5},
                                             {"H100", 989.4},
                                             {"H800", 989.4},
                                             {"H20", 148},
                                             {"A100", 312},
                                             {"A800", 312},
                                             {"A40", 149.7},
                                             {"A30", 165},
                                             {"A10", 125},
                                             {"L40S", 362.1},
                                             {"L40", 181.1},
                                             {"L4", 121},
                                             {"V100", 125},
                                             {"T4", 65}});

}  // namespace

std::optional<DevicePeak> find_peak(std::string_view description) {
  const auto found =
      std::ranges::find_if(peaks, [&](const Entry& entry) { return description.find(entry.name) != description.npos; });
  if (found == peaks.end()) return std::nullopt;
  return DevicePeak{std::string(found->name), found->tflops};
}

DevicePeak parse_peak(const std::string& text) {
  if (const auto tflops = parse_number<double>(text); tflops && *tflops > 0) return {"the given device", *tflops};
  const auto found = std::ranges::find(peaks, text, &Entry::name);
  if (found != peaks.end()) return {text, found->tflops};
  std::vector<std::string_view> names;
  for (const Entry& entry : peaks) names.push_back(entry.name);
  throw ConfigError("<mfu_peak> {}: is neither a number of TFLOP/s nor one of {}", text, fmt::join(names, ", "));
}

}  // namespace trireme::train
