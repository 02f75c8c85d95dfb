#pragma once

#include <optional>
#include <vector>

#include "src/backend/gpu_health.hpp"
#include "src/base/timer.hpp"
#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// States of this rank's GPU under load, by NVML. Empty on the CPU, or without NVML.
class LoadWatch {
 public:
  explicit LoadWatch(const Context& context);

  /// Samples the state, at most ten times a second. Call it while the GPU is busy.
  void look();
  /// Returns the medians of clocks, which are compared with those of all ranks, and slowdowns. A GPU fails if its
  /// temperature, hardware or a power brake throttles it in at least half of the samples: single ones occur while
  /// clocks change.
  std::vector<Result> results() const;

 private:
  std::optional<GpuMonitor> monitor_;
  double min_share_;
  std::optional<Timer> since_latest_;
  std::vector<GpuLoad> samples_;
};

}  // namespace trireme::selftest
