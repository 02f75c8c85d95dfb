#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <string>

#include "cuda/cublaslt/choose.hpp"
#include "src/backend/backend.hpp"

namespace trireme::bench {

/// Times kernels of a backend. Prints a line for each: time, rate, and the share of the rate of a ceiling in the same
/// run. The ceiling of a memory-bound kernel is a plain copy of the same size, since small copies are slower. That of
/// products is a large product, and that of copies one of 1 GiB. In a dry run, for testing, the CPU backend stands in
/// for a GPU.
class GpuMeasure {
 public:
  /// Measures the copy of 1 GiB and the product. `json` receives one object a line. With `once`, for profilers, each
  /// kernel runs once and times are invalid.
  GpuMeasure(Backend& backend, bool dry_run, bool once, std::ostream& json);

  /// Random numbers in [-1, 1): constants would draw less power, and let the clock rise.
  Tensor filled(const Shape& shape, DType dtype = DType::bf16);

  using Work = std::function<void(int call)>;  // calls are numbered, so that they can take turns with memory
  /// A kernel that moves `bytes` from and to memory, as its definition has it: each input once, each output once. The
  /// first of a size measures the copy, too.
  void memory(const std::string& kernel, const std::string& shape, double bytes, const Work& work) {
    measure({kernel, shape, DType::bf16, "GB/s", 1e-9}, copy_rate(bytes), bytes, work);
  }
  /// One on tensor cores.
  void products(const std::string& kernel, const std::string& shape, double operations, const Work& work) {
    const double rate = measure({kernel, shape, DType::bf16, "TFLOP/s", 1e-12}, product_, operations, work);
    if (product_ == 0) product_ = rate;
  }
  /// Number of tensors of a size needed for every call to miss the caches.
  int copies_beyond_caches(double bytes) const { return dry_run_ ? 2 : static_cast<int>(4e8 / bytes) + 1; }

  Backend& b;
  Stream& stream;

 private:
  struct Line {
    std::string kernel, shape;
    DType dtype;
    const char* unit;
    double per_unit;
  };
  /// Returns the rate. `ceiling` 0: the rate is its own ceiling.
  double measure(const Line& line, double ceiling, double amount, const Work& work);
  /// Bytes per second of a copy that reads half of `bytes` and writes the other half. Measured once for each size.
  double copy_rate(double bytes);
  /// Seconds of a call: the median over seven runs after a warm-up. A run has enough calls to take about 2 ms, at least
  /// one.
  double seconds(const Work& work);

  bool dry_run_, once_;
  std::ostream& json_;
  Tensor random_;
  cuda::EventTimer timer_;
  double large_copy_ = 0, product_ = 0;  // bytes and operations per second
  std::map<double, double> copies_;      // rates by bytes moved
};

}  // namespace trireme::bench
