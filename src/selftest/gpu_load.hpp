#pragma once

#include <optional>
#include <vector>

#include "src/backend/gpu_health.hpp"
#include "src/base/timer.hpp"
#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// States of this rank's GPU under load, by NVML. Knows nothing on the CPU, or where NVML cannot be asked.
class LoadWatch {
 public:
  explicit LoadWatch(const Context& context);

  /// Reads the state, at most ten times a second. To be called while the GPU works.
  void look();
  /// Returns the medians of clocks, which are compared with those of all ranks, and slowdowns. A GPU fails where its
  /// temperature, its hardware or a power brake slows it down in at least half of the samples: single ones occur while
  /// clocks change.
  std::vector<Result> results() const;

 private:
  std::optional<GpuMonitor> monitor_;
  double min_share_;
  std::optional<Timer> since_latest_;
  std::vector<GpuLoad> samples_;
};

}  // namespace trireme::selftest
