#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::train {

/// Peak of a device for products in 16 bits with fp32 sums, without sparsity, by its maker's data sheet.
struct DevicePeak {
  std::string name;
  double tflops = 0;  ///< 10^12 FLOPs a second
};

/// Returns the peak of the device whose name occurs in `description` ("NVIDIA H100 80GB HBM3"); empty for others.
std::optional<DevicePeak> find_peak(std::string_view description);

/// Returns the peak that a user names: a device of the table, or TFLOP/s. ConfigError, with the names, for other texts.
DevicePeak parse_peak(const std::string& text);

}  // namespace trireme::train
