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
  /// Microseconds of device time that the work enqueued by `run` takes.
  virtual double time_us(CudaStream& stream, const std::function<void()>& run) = 0;
};

/// Measures by CUDA's events.
class EventTimer final : public WorkTimer {
 public:
  double time_us(CudaStream& stream, const std::function<void()>& run) override;
};

/// Chooses algorithms by time.
class Tuner {
 public:
  explicit Tuner(std::unique_ptr<WorkTimer> timer) : timer_(std::move(timer)) {}

  /// Returns the candidate with the smallest median time; of equal ones the first. There must be at least one. Throws
  /// CublasError where `run` fails for all of them.
  ///
  /// No collective runs beside the measurement. Before the first one the GPU works for 200 ms, so that its clocks have
  /// risen. Every candidate runs once without a measurement, which loads its kernel. Then rounds measure all of them
  /// in turn, so that drifting clocks affect all alike: one round of single runs, and five that count, of about 100 us
  /// for each candidate. After each round those leave whose least time is far behind the best: twice in the first
  /// round, then by a tenth. Half a second of counted rounds is the last one's end.
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
