#pragma once

#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// State of each rank's GPU by NVML: driver, largest clocks, limit of power and ECC errors. To be run after the burn.
/// An error that ECC could not correct fails, as do clocks and limits of power below those of the other GPUs. Left out,
/// with the reason, where NVML cannot be asked; no result on the CPU.
class GpuCheck final : public Check {
 public:
  std::string name() const override { return "GPU state"; }
  std::string measures() const override { return "driver, clocks and ECC errors"; }
  std::vector<Result> run(Context& context) override;
};

}  // namespace trireme::selftest
