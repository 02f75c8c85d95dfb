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
  /// Microseconds of device time that the work enqueued by `run` takes.
  virtual double time_us(CudaStream& stream, const std::function<void()>& run) = 0;
};

/// Measures by CUDA's events.
class EventTimer final : public WorkTimer {
 public:
  double time_us(CudaStream& stream, const std::function<void()>& run) override;
};

/// Returns the candidate with the smallest median time over several runs on the real operands, after a run that is not
/// counted; of equal ones the first. There must be at least one candidate. Throws CublasError where `run` fails for all
/// of them.
Choice choose_fastest(CudaStream& stream, WorkTimer& timer, const std::vector<Choice>& candidates,
                      const std::function<void(const Choice&)>& run);

/// Returns the first candidate for which `run` does not throw CublasError. Throws the last error where all fail.
Choice first_that_runs(const std::vector<Choice>& candidates, const std::function<void(const Choice&)>& run);

}  // namespace trireme::cuda
