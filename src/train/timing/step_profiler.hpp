#pragma once

#include <cstdint>

#include "src/backend/profiled_device.hpp"
#include "src/base/error.hpp"

namespace trireme::train {

/// Lets a profiler record the iterations after `start`, up to and including `end`, on this rank.
class StepProfiler {
 public:
  /// `done` is the number of completed iterations. `device` must outlive it.
  StepProfiler(ProfiledDevice& device, std::int64_t start, std::int64_t end, std::int64_t done)
      : device_(device), start_(start), end_(end) {
    after_step(done);
  }
  ~StepProfiler() {
    try {
      set(false);
    } catch (const Error&) {
      // The device has failed, which is reported elsewhere.
    }
  }
  StepProfiler& operator=(StepProfiler&&) = delete;

  /// Starts or stops the recording after iteration `done`.
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
