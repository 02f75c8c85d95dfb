#pragma once

#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// Rates of this rank's device with all others equally loaded: a copy between tensors larger than the caches, and a
/// product of large matrices. Operations of a product of [n, n] matrices: 2 n^3. Bytes of a copy: those read and those
/// written. The rates are compared with the median of all ranks and with the ceilings of the device, if known: this
/// also detects a single slow GPU, or uniformly slow ones.
class SpeedCheck final : public Check {
 public:
  std::string name() const override { return "speed"; }
  std::string measures() const override { return "rates of a copy and of a product"; }
  std::vector<Result> run(Context& context) override;
};

/// Repeats one product for `burn_seconds` and compares every result with the first one, element by element. Detects
/// silent corruption, and devices that throttle when hot. GPUs also report their clocks, temperature, power and
/// throttle reasons under load.
class BurnCheck final : public Check {
 public:
  std::string name() const override { return "burn"; }
  std::string measures() const override { return "products of which every result must have the first one's bits"; }
  std::vector<Result> run(Context& context) override;
};

}  // namespace trireme::selftest
