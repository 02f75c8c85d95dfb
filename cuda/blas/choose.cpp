#include "cuda/blas/choose.hpp"

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

Choice choose_fastest(CudaStream& stream, WorkTimer& timer, const std::vector<Choice>& candidates,
                      const std::function<void(const Choice&)>& run) {
  Choice best = candidates.front();
  double best_us = std::numeric_limits<double>::infinity();
  for (const Choice& candidate : candidates) {
    run(candidate);
    std::array<double, 5> times_us{};
    for (double& time_us : times_us) time_us = timer.time_us(stream, [&] { run(candidate); });
    std::ranges::nth_element(times_us, times_us.begin() + 2);
    if (times_us[2] < best_us) {
      best_us = times_us[2];
      best = candidate;
    }
  }
  return best;
}

}  // namespace trireme::cuda
