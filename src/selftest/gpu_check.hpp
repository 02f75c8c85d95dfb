#pragma once

#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// State of each rank's GPU by NVML: driver, largest clocks, limit of power and ECC errors. Run it after the burn.
/// Uncorrectable ECC errors fail, as do clocks and power limits below those of the other GPUs. Skipped, with the
/// reason, if NVML is unavailable; no result on the CPU.
class GpuCheck final : public Check {
 public:
  std::string name() const override { return "GPU state"; }
  std::string measures() const override { return "driver, clocks and ECC errors"; }
  std::vector<Result> run(Context& context) override;
};

}  // namespace trireme::selftest
