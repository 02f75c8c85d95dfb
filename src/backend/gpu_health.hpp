#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace trireme {

/// State of a GPU as NVIDIA's management library (NVML) reports it. Values that the GPU does not report are empty.
struct GpuHealth {
  std::string driver;                               ///< version of the driver: "580.65.06"
  std::optional<double> max_clock_mhz;              ///< largest clock of the multiprocessors
  std::optional<double> max_memory_clock_mhz;       ///< largest clock of the memory
  std::optional<double> power_limit_w;              ///< configured power limit
  std::optional<std::uint64_t> corrected_errors;    ///< ECC errors corrected since the driver was loaded
  std::optional<std::uint64_t> uncorrected_errors;  ///< ECC errors that could not be corrected
  std::string problem;                              ///< reason why nothing is known; else empty
};

/// Queries NVML about the GPU at a PCI address, "0000:17:00.0". The library is opened at run time. Never throws: the
/// report contains the faults.
GpuHealth read_gpu_health(const std::string& pci_address, const std::string& library);

/// State of a GPU at one moment, while it works. Values that the GPU does not report are empty.
struct GpuLoad {
  std::optional<double> clock_mhz;  ///< clock of the multiprocessors
  std::optional<double> memory_clock_mhz;
  std::optional<double> temperature_c;
  std::optional<double> power_w;
  std::optional<std::uint64_t> slowdowns;  ///< bits of `slowdown_reasons`
};

/// Reason for which a GPU runs below its largest clock.
struct SlowdownReason {
  std::uint64_t bit;
  const char* name;
  bool is_fault;  ///< false: a healthy GPU under load has it, too
};
/// Numbers are those of NvmlClocksThrottleReasons in the "NVML API Reference Guide".
inline constexpr SlowdownReason slowdown_reasons[] = {{0x04, "limit of power", false},
                                                      {0x08, "slowdown by the hardware", true},
                                                      {0x20, "temperature (driver)", true},
                                                      {0x40, "temperature (hardware)", true},
                                                      {0x80, "power brake", true}};

/// One GPU, whose state is read repeatedly. The library is opened at run time. Never throws.
class GpuMonitor {
 public:
  GpuMonitor(const std::string& pci_address, const std::string& library);
  ~GpuMonitor();
  GpuMonitor& operator=(GpuMonitor&&) = delete;
  /// Returns the current state; nothing if NVML cannot be queried.
  std::optional<GpuLoad> read() const;

 private:
  class Gpu;
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace trireme
