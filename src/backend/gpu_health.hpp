#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// State of a GPU as NVIDIA's management library (NVML) reports it. Values that the GPU does not report are empty.
struct GpuHealth {
  std::string driver;                               ///< version of the driver: "580.65.06"
  std::optional<double> max_clock_mhz;              ///< largest clock of the multiprocessors
  std::optional<double> max_memory_clock_mhz;       ///< largest clock of the memory
  std::optional<double> power_limit_w;              ///< limit of power that is set
  std::optional<std::uint64_t> corrected_errors;    ///< ECC errors that were corrected since the driver was loaded
  std::optional<std::uint64_t> uncorrected_errors;  ///< ECC errors that were not
  std::string problem;                              ///< reason why nothing is known; empty: something is
};

/// Asks NVML for the GPU at a PCI address, "0000:17:00.0". The library is opened at run time. Never throws: the report
/// contains the faults.
GpuHealth read_gpu_health(const std::string& pci_address, const std::string& library = "libnvidia-ml.so.1");

}  // namespace trireme
