#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda/cublaslt/algorithm_cache.hpp"
#include "cuda/runtime/stream.hpp"

namespace trireme::cuda {

/// Measures work on a stream.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  /// Returns the device time in microseconds of the work enqueued by `run`.
  virtual double time_us(CudaStream& stream, const std::function<void()>& run) = 0;
};

/// Measures with CUDA events.
class EventTimer final : public WorkTimer {
 public:
  double time_us(CudaStream& stream, const std::function<void()>& run) override;
};

/// Chooses algorithms by time.
class Tuner {
 public:
  explicit Tuner(std::unique_ptr<WorkTimer> timer) : timer_(std::move(timer)) {}

  /// Returns the candidate with the smallest median time, the first of equal ones. Requires at least one. Throws
  /// CublasError if `run` fails for all of them.
  ///
  /// No collective runs during the measurement. Before the first one the GPU is kept busy for 200 ms to ramp up its
  /// clocks. Every candidate first runs once unmeasured, which loads its kernel. Then rounds measure all of them in
  /// turn, so clock drift affects all alike: one round of single runs, and five that count, of about 100 us per
  /// candidate. Each round drops those whose minimum is far above the best: by a factor of two in the first round, then
  /// by a tenth. Counted rounds end after half a second.
  Choice fastest(CudaStream& stream, const std::vector<Choice>& candidates,
                 const std::function<void(const Choice&)>& run);

 private:
  void warm_up(CudaStream& stream, const std::function<void()>& run);

  std::unique_ptr<WorkTimer> timer_;
  bool is_warm_ = false;
};

/// Returns the first candidate for which `run` does not throw CublasError. Throws the last error where all fail.
Choice first_that_runs(const std::vector<Choice>& candidates, const std::function<void(const Choice&)>& run);

}  // namespace trireme::cuda
