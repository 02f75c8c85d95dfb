#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::train {

/// Peak of a device for 16-bit GEMMs with fp32 accumulation, without sparsity, from the vendor's data sheet.
struct DevicePeak {
  std::string name;
  double tflops = 0;  ///< 10^12 FLOP/s
};

/// Returns the peak of the device whose name occurs in `description` ("NVIDIA H100 80GB HBM3"); empty if unknown.
std::optional<DevicePeak> find_peak(std::string_view description);

/// Returns the peak that a user gives: a device of the table, or TFLOP/s. ConfigError, with the names, for other texts.
DevicePeak parse_peak(const std::string& text);

}  // namespace trireme::train
