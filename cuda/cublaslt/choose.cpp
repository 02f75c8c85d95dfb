#include "cuda/cublaslt/choose.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace trireme::cuda {
namespace {

class TimedEvent {
 public:
  explicit TimedEvent(const Device& device) { device.check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Median of several measurements, after one run that is not counted. A short run is repeated between two events: the
/// host takes some microseconds to enqueue it.
double median_us(CudaStream& stream, WorkTimer& timer, const std::function<void()>& run) {
  constexpr double enough_us = 100, max_runs = 16;
  run();
  const double once_us = std::max(timer.time_us(stream, run), 1.0);
  const int runs = static_cast<int>(std::clamp(enough_us / once_us, 1.0, max_runs));
  std::array<double, 5> times_us{};
  for (double& time_us : times_us) {
    time_us = timer.time_us(stream, [&] {
      for (int i = 0; i < runs; ++i) run();
    });
  }
  std::ranges::nth_element(times_us, times_us.begin() + 2);
  return times_us[2] / runs;
}

}  // namespace

double EventTimer::time_us(CudaStream& stream, const std::function<void()>& run) {
  Device& device = stream.device();
  const TimedEvent begin(device), end(device);
  device.check(cudaEventRecord(begin.handle(), stream.handle()), "cudaEventRecord");
  run();
  device.check(cudaEventRecord(end.handle(), stream.handle()), "cudaEventRecord");
  device.wait_until([&] { return cudaEventQuery(end.handle()); }, "cudaEventQuery");
  float elapsed_ms = 0;
  device.check(cudaEventElapsedTime(&elapsed_ms, begin.handle(), end.handle()), "cudaEventElapsedTime");
  return 1000.0 * elapsed_ms;
}

// cuBLASLt may refuse its own suggestion: then the next candidate is tried.

Choice choose_fastest(CudaStream& stream, WorkTimer& timer, const std::vector<Choice>& candidates,
                      const std::function<void(const Choice&)>& run) {
  const Choice* best = nullptr;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Choice& candidate : candidates) {
    try {
      const double time_us = median_us(stream, timer, [&] { run(candidate); });
      if (best != nullptr && time_us >= best_us) continue;
      best_us = time_us;
      best = &candidate;
    } catch (const CublasError&) {
      if (best == nullptr && &candidate == &candidates.back()) throw;
    }
  }
  return *best;
}

Choice first_that_runs(const std::vector<Choice>& candidates, const std::function<void(const Choice&)>& run) {
  for (const Choice& candidate : candidates) {
    try {
      run(candidate);
      return candidate;
    } catch (const CublasError&) {
      if (&candidate == &candidates.back()) throw;
    }
  }
  return candidates.front();
}

}  // namespace trireme::cuda
