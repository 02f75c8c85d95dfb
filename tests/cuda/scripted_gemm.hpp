#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "cuda/kernels/gemm.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "tests/fakes/cublaslt/fake_cublaslt.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::cuda {

/// The products that a timer measured, and the warm-ups. Warm-ups enqueue several products at once; with products of
/// 100 us or more, a measurement is of one.
struct Measured {
  std::vector<fake_cublaslt::Last> products;
  int warm_ups = 0;
};

/// Takes times from a function of the product that was just enqueued.
class ScriptedTimer final : public WorkTimer {
 public:
  using Cost = std::function<double(const fake_cublaslt::Last&)>;
  ScriptedTimer(Cost cost, Measured& measured) : cost_(std::move(cost)), measured_(measured) {}
  double time_us(CudaStream&, const std::function<void()>& run) override {
    const int before = fake_cublaslt::products();
    run();
    const int count = fake_cublaslt::products() - before;
    if (count == 1)
      measured_.products.push_back(fake_cublaslt::last());
    else
      ++measured_.warm_ups;
    return cost_(fake_cublaslt::last()) * count;
  }

 private:
  Cost cost_;
  Measured& measured_;
};

// So long that one warm-up and one counted round are enough.
inline double prefer_fused(const fake_cublaslt::Last& last) {
  return last.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 2e5 : 1e5;
}
inline double prefer_separate(const fake_cublaslt::Last& last) { return 3e5 - prefer_fused(last); }

/// Products on the fakes, with scripted times.
class CudaGemm : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cuda::start_kernels_on_streams();
    fake_cublaslt::reset();
  }
  void TearDown() override { fake_cublaslt::reset(); }
  std::unique_ptr<GemmKernels> make(const ScriptedTimer::Cost& cost, const GemmOptions& options = {}) {
    return make_gemm(device_, memory_, std::make_unique<ScriptedTimer>(cost, measured_), options);
  }
  /// y of a product with bias.
  std::vector<double> multiply(GemmKernels& gemm, std::int64_t rows = 8) {
    const Tensor x = test::random_tensor(*cpu_, DType::bf16, {rows, 16}, 1);
    const Tensor w = test::random_tensor(*cpu_, DType::bf16, {24, 16}, 2);
    const Tensor bias = test::random_tensor(*cpu_, DType::bf16, {24}, 3);
    const Tensor y = test::poisoned_tensor(*cpu_, DType::bf16, {rows, 24});
    gemm.linear(stream_, x, w, bias, Activation::none, {}, y);
    stream_.synchronize();
    return test::values_of(*cpu_, y);
  }

  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{0, "node7", 0, ""}, LaunchChecks::deferred);
  std::shared_ptr<DeviceMemory> memory_ = std::make_shared<DeviceMemory>(device_);
  CudaStream stream_{device_};
  std::unique_ptr<Backend> cpu_ = cpu::make_backend(1);
  Measured measured_;
  const test::TemporaryDirectory folder_;
  const std::string file_ = folder_ / "algorithms";
};

}  // namespace trireme::cuda
