// The CUDA runtime, products and NCCL on a real GPU. See GpuTest for machines without one.
#include <fmt/format.h>

#include "cuda/kernels/gemm.hpp"
#include "cuda/nccl/nccl_communicator.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

using GpuRuntime = GpuTest;

TEST_F(GpuRuntime, CopiesThereAndBackKeepBits) {
  const Tensor host = random_tensor(*cpu_, DType::fp32, {1025, 33}, 1);
  EXPECT_EQ(bytes_of(*cpu_, download(upload(host))), bytes_of(*cpu_, host));
}

TEST_F(GpuRuntime, AStreamSeesWhatItWaitedFor) {
  constexpr std::int64_t size = 1 << 24;
  const Tensor a = random(DType::fp32, {size}, 1), b = poisoned(DType::fp32, {size}), c = poisoned(DType::fp32, {size});
  cuda::CudaStream other(device_);
  cuda::copy(*stream_, a, b);
  other.wait(*stream_->record());
  cuda::copy(other, b, c);
  other.synchronize();
  EXPECT_EQ(bytes_of(*cpu_, download(c)), bytes_of(*cpu_, download(a)));
}

TEST_F(GpuRuntime, MemoryThatIsNotThereIsAnErrorAndTheGpuGoesOn) {
  EXPECT_THROW((void)memory_->allocate(std::size_t{1} << 50), EnvironmentError);
  EXPECT_EQ(values(upload(make_tensor(*cpu_, DType::fp32, {1}, {7})))[0], 7);
}

struct Shapes {
  std::int64_t n, in, out;
};
// Small and odd, and those of GPT-2 124M at 2048 tokens.
constexpr Shapes shapes[] = {{0, 31, 33}, {1, 1, 1}, {31, 33, 1025}, {1025, 31, 33}, {64, 64, 64}, {2048, 768, 3072}};

/// Each measurement is less than the one before: the last candidate wins, of products with their epilogue in kernels of
/// its own.
class FallingTimes final : public cuda::WorkTimer {
 public:
  double time_us(cuda::CudaStream&, const std::function<void()>& run) override {
    run();
    return time_us_ -= 1;
  }

 private:
  double time_us_ = 1e9;
};

class GpuGemm : public GpuTest, public testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    gemms_["fastest"] = make({});
    gemms_["deterministic"] = make({.allow_tf32 = false, .deterministic = true, .cache_file = ""});
    gemms_["last"] = cuda::make_gemm(device_, memory_, std::make_unique<FallingTimes>(), {});
    if (GetParam() == DType::fp32) gemms_[tf32] = make({.allow_tf32 = true, .deterministic = false, .cache_file = ""});
  }
  std::unique_ptr<GemmKernels> make(const cuda::GemmOptions& options) {
    return cuda::make_gemm(device_, memory_, std::make_unique<cuda::EventTimer>(), options);
  }
  /// Separate kernels read the product rounded to the training type, and round again. TF32 has 10 fraction bits: it
  /// drops at most 2^-10 of each factor.
  void expect_equal(ConstTensorView device, ConstTensorView expected, const std::string& gemm,
                    const std::string& what) {
    const Tolerance once = tolerance(device.dtype(), Operation::sum, DType::fp32);
    const Tolerance exact{3 * once.relative, once.absolute + 2 * once.relative};
    const Tolerance short_factors{std::ldexp(1.0, -9), std::ldexp(1.0, -10)};
    expect_close(values(device), values_of(*cpu_, expected), gemm == tf32 ? short_factors : exact, gemm + ": " + what);
  }
  static constexpr const char* tf32 = "TF32";
  std::map<std::string, std::unique_ptr<GemmKernels>> gemms_;
};
INSTANTIATE_TEST_SUITE_P(Types, GpuGemm, testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(GpuGemm, LinearEqualsTheCpus) {
  for (const auto& [n, in, out] : shapes) {
    const Tensor x = random(GetParam(), {n, in}, 1), w = random(GetParam(), {out, in}, 2);
    const Tensor bias = random(GetParam(), {out}, 3);
    for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf}) {
      const Tensor exact_z(*cpu_, DType::fp64, {n, out}), exact_y(*cpu_, DType::fp64, {n, out});
      cpu_->gemm().linear(cpu_->compute_stream(), exact(x), exact(w), exact(bias), activation, exact_z, exact_y);
      for (const auto& [name, gemm] : gemms_) {
        const Tensor z = poisoned(GetParam(), {n, out}), y = poisoned(GetParam(), {n, out});
        gemm->linear(*stream_, x, w, bias, activation, z, y);
        const std::string what = fmt::format("{} {} {}, activation {}", n, in, out, static_cast<int>(activation));
        expect_equal(y, exact_y, name, what);
        if (activation != Activation::none) expect_equal(z, exact_z, name, what + ", pre-activation");
      }
    }
  }
}

TEST_P(GpuGemm, BackwardEqualsTheCpus) {
  for (const auto& [n, in, out] : shapes) {
    const Tensor dy = random(GetParam(), {n, out}, 4), w = random(GetParam(), {out, in}, 5);
    const Tensor x = random(GetParam(), {n, in}, 6);
    for (const auto& [name, gemm] : gemms_) {
      for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf}) {
        const Tensor exact_dx(*cpu_, DType::fp64, {n, in}), dx = poisoned(GetParam(), {n, in});
        cpu_->gemm().linear_backward_input(cpu_->compute_stream(), exact(dy), exact(w), activation, exact(x), exact_dx);
        gemm->linear_backward_input(*stream_, dy, w, activation, x, dx);
        expect_equal(dx, exact_dx, name,
                     fmt::format("{} {} {}, activation {}", n, in, out, static_cast<int>(activation)));
      }
      const Tensor dw = random(DType::fp32, {out, in}, 7), dbias = random(DType::fp32, {out}, 8);
      const Tensor exact_dw = exact(dw), exact_dbias = exact(dbias);
      for (int round = 0; round < 2; ++round) {
        gemm->linear_backward_weight(*stream_, dy, x, dw, dbias);
        cpu_->gemm().linear_backward_weight(cpu_->compute_stream(), exact(dy), exact(x), exact_dw, exact_dbias);
      }
      const std::string what = fmt::format("{} {} {}", n, in, out);
      expect_equal(dw, exact_dw, name, what);
      expect_equal(dbias, exact_dbias, name, what + ", bias");
    }
  }
}

TEST_P(GpuGemm, DeterministicProductsHaveTheSameBitsInEveryRun) {
  const Tensor x = random(GetParam(), {2048, 768}, 1), w = random(GetParam(), {3072, 768}, 2);
  std::vector<std::vector<std::byte>> results;
  for (int run = 0; run < 2; ++run) {
    const Tensor y = poisoned(GetParam(), {2048, 3072});
    make({.allow_tf32 = false, .deterministic = true, .cache_file = ""})
        ->linear(*stream_, x, w, {}, Activation::none, {}, y);
    results.push_back(bytes_of(*cpu_, download(y)));
  }
  EXPECT_EQ(results[0], results[1]);
}

using GpuTf32 = GpuTest;

TEST_F(GpuTf32, IsTakenWhereItIsAllowed) {
  const Tensor x = random(DType::fp32, {2048, 768}, 1), w = random(DType::fp32, {3072, 768}, 2);
  std::vector<double> results[2];
  for (const bool allowed : {false, true}) {
    const Tensor y = poisoned(DType::fp32, {2048, 3072});
    cuda::make_gemm(device_, memory_, std::make_unique<cuda::EventTimer>(), {.allow_tf32 = allowed, .cache_file = ""})
        ->linear(*stream_, x, w, {}, Activation::none, {}, y);
    results[allowed] = values(y);
  }
  EXPECT_TRUE(results[0] != results[1]);
}

using GpuOneRank = GpuTest;

TEST_F(GpuOneRank, RunsEveryCollective) {
  const auto world = cuda::NcclCommunicator::make(device_, memory_, std::make_unique<SelfCommunicator>("world"));
  const auto comm = world->split(0, 0, "tensor");
  const Tensor x = random(DType::bf16, {1000}, 1), y = poisoned(DType::bf16, {1000}), z = poisoned(DType::bf16, {1000});
  const std::vector<double> expected = values(x);
  comm->all_reduce(*stream_, x, ReduceOp::sum).wait(*stream_);
  comm->reduce_scatter(*stream_, x, y, ReduceOp::max).wait(*stream_);
  comm->broadcast(*stream_, y, 0).wait(*stream_);
  comm->all_gather(*stream_, y, z).wait(*stream_);
  comm->barrier();
  EXPECT_EQ(values(z), expected);
}

}  // namespace
}  // namespace trireme::test
