#pragma once

#include <cstdint>

#include "src/backend/profiled_device.hpp"
#include "src/base/error.hpp"

namespace trireme::train {

/// Lets a profiler record some iterations of a run on this rank: those after `start`, up to and with `end`.
class StepProfiler {
 public:
  /// `done` is the number of iterations that are done. `device` must live longer.
  StepProfiler(ProfiledDevice& device, std::int64_t start, std::int64_t end, std::int64_t done)
      : device_(device), start_(start), end_(end) {
    after_step(done);
  }
  ~StepProfiler() {
    try {
      set(false);
    } catch (const Error&) {
      // The run ends, and its device has failed: that error is known.
    }
  }
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  /// Begins or ends the recording after iteration `done`.
  void after_step(std::int64_t done) { set(start_ <= done && done < end_); }

 private:
  void set(bool records) {
    if (records == records_) return;
    records_ = records;
    records ? device_.start_profiler() : device_.stop_profiler();
  }

  ProfiledDevice& device_;
  std::int64_t start_, end_;
  bool records_ = false;
};

}  // namespace trireme::train
