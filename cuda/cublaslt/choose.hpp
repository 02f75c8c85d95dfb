#pragma once

#include <functional>
#include <vector>

#include "cuda/cublaslt/algorithm_cache.hpp"
#include "cuda/runtime/stream.hpp"

namespace trireme::cuda {

/// Measures work on a stream.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  /// Microseconds that what `run` enqueues takes on the device.
  virtual double time_us(CudaStream& stream, const std::function<void()>& run) = 0;
};

/// By CUDA's events.
class EventTimer final : public WorkTimer {
 public:
  double time_us(CudaStream& stream, const std::function<void()>& run) override;
};

/// The candidate whose median time over several runs is the least, on the real operands, after a run that is not
/// counted; of equal ones the first. There must be at least one. Throws CublasError where `run` does for all of them.
Choice choose_fastest(CudaStream& stream, WorkTimer& timer, const std::vector<Choice>& candidates,
                      const std::function<void(const Choice&)>& run);

/// The first candidate for which `run` does not throw CublasError; of all, the last one's error.
Choice first_that_runs(const std::vector<Choice>& candidates, const std::function<void(const Choice&)>& run);

}  // namespace trireme::cuda
