// Products by cuBLASLt, against the CPU backend in fp64. The fake cuBLASLt computes the products that the library
// documents: every tensor has its place.
#include "tests/cuda/scripted_gemm.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::cuda {
namespace {

using namespace test;

struct Case {
  DType dtype;
  bool fused;
};

class CudaGemmValues : public CudaGemm, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    CudaGemm::SetUp();
    gemm_ = make(GetParam().fused ? prefer_fused : prefer_separate);
  }
  DType dtype() const { return GetParam().dtype; }
  /// Separate kernels find the product rounded to the training type, and round again.
  Tolerance allowed(DType dtype) const {
    const Tolerance once = tolerance(dtype, Operation::sum, DType::fp32);
    return {3 * once.relative, once.absolute + 2 * once.relative};
  }
  Tensor random(const Shape& shape, std::uint64_t seed) {
    return random_tensor(*cpu_, dtype(), shape, seed, -0.5, 0.5);
  }
  Tensor exact(ConstTensorView tensor) { return converted(*cpu_, tensor, DType::fp64); }
  void expect_equal(ConstTensorView actual, ConstTensorView expected, const std::string& what) {
    expect_close(values_of(*cpu_, actual), values_of(*cpu_, expected), allowed(actual.dtype()), what);
  }

  std::unique_ptr<GemmKernels> gemm_;
};
INSTANTIATE_TEST_SUITE_P(Forms, CudaGemmValues,
                         testing::Values(Case{DType::fp32, true}, Case{DType::fp32, false}, Case{DType::bf16, true},
                                         Case{DType::bf16, false}, Case{DType::fp16, true}, Case{DType::fp16, false}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.dtype)) + (info.param.fused ? "_fused" : "_separate");
                         });

struct Extents {
  std::int64_t n, in, out;
};
constexpr Extents extents_list[] = {{0, 3, 4}, {5, 0, 3}, {1, 1, 1}, {31, 33, 17}, {600, 8, 24}};

TEST_P(CudaGemmValues, LinearEqualsTheCpus) {
  for (const auto& [n, in, out] : extents_list) {
    for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf}) {
      for (const int given : {0, 1, 2, 3}) {
        const Tensor x = random({n, in}, 1), w = random({out, in}, 2), bias = random({out}, 3);
        const Tensor z = poisoned_tensor(*cpu_, dtype(), {n, out}), y = poisoned_tensor(*cpu_, dtype(), {n, out});
        const Tensor exact_z(*cpu_, DType::fp64, {n, out}), exact_y(*cpu_, DType::fp64, {n, out});
        const bool has_bias = (given & 1) != 0, keeps = (given & 2) != 0;
        gemm_->linear(stream_, x, w, has_bias ? ConstTensorView(bias) : ConstTensorView(), activation,
                      keeps ? z.view() : TensorView(), y);
        stream_.synchronize();
        const Tensor exact_bias = exact(bias);
        cpu_->gemm().linear(cpu_->compute_stream(), exact(x), exact(w),
                            has_bias ? ConstTensorView(exact_bias) : ConstTensorView(), activation, exact_z, exact_y);
        const std::string what = fmt::format("n {}, in {}, out {}, activation {}, parts {}", n, in, out,
                                             static_cast<int>(activation), given);
        expect_equal(y, exact_y, what);
        if (keeps && activation != Activation::none) expect_equal(z, exact_z, what + ", pre-activation");
      }
    }
  }
}

TEST_P(CudaGemmValues, BackwardInputEqualsTheCpus) {
  for (const auto& [n, in, out] : extents_list) {
    for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf}) {
      const Tensor dy = random({n, out}, 4), w = random({out, in}, 5), z = random({n, in}, 6);
      const Tensor dx = poisoned_tensor(*cpu_, dtype(), {n, in}), exact_dx(*cpu_, DType::fp64, {n, in});
      gemm_->linear_backward_input(stream_, dy, w, activation, z, dx);
      stream_.synchronize();
      cpu_->gemm().linear_backward_input(cpu_->compute_stream(), exact(dy), exact(w), activation, exact(z), exact_dx);
      expect_equal(dx, exact_dx,
                   fmt::format("n {}, in {}, out {}, activation {}", n, in, out, static_cast<int>(activation)));
    }
  }
}

TEST_P(CudaGemmValues, BackwardWeightAddsToWhatIsThere) {
  for (const auto& [n, in, out] : extents_list) {
    for (const bool has_bias : {false, true}) {
      const Tensor dy = random({n, out}, 7), x = random({n, in}, 8);
      const Tensor dw = random_tensor(*cpu_, DType::fp32, {out, in}, 9),
                   dbias = random_tensor(*cpu_, DType::fp32, {out}, 10);
      const Tensor exact_dw = exact(dw), exact_dbias = exact(dbias);
      for (int round = 0; round < 2; ++round) {
        gemm_->linear_backward_weight(stream_, dy, x, dw, has_bias ? dbias.view() : TensorView());
        cpu_->gemm().linear_backward_weight(cpu_->compute_stream(), exact(dy), exact(x), exact_dw,
                                            has_bias ? exact_dbias.view() : TensorView());
      }
      stream_.synchronize();
      const std::string what = fmt::format("n {}, in {}, out {}", n, in, out);
      expect_equal(dw, exact_dw, what);
      expect_equal(dbias, exact_dbias, what + ", bias");
    }
  }
}

TEST_F(CudaGemm, Fp32UsesTf32OnlyWhereItMay) {
  const Tensor x = random_tensor(*cpu_, DType::fp32, {8, 16}, 1), w = random_tensor(*cpu_, DType::fp32, {24, 16}, 2);
  const Tensor y = poisoned_tensor(*cpu_, DType::fp32, {8, 24});
  make(prefer_fused)->linear(stream_, x, w, {}, Activation::none, {}, y);
  EXPECT_EQ(fake_cublaslt::last().compute, CUBLAS_COMPUTE_32F);
  make(prefer_fused, {.allow_tf32 = true, .cache_file = ""})->linear(stream_, x, w, {}, Activation::none, {}, y);
  EXPECT_EQ(fake_cublaslt::last().compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  stream_.synchronize();
}

TEST_F(CudaGemm, Fp64IsRefusedWithTheRemedy) {
  const Tensor x = random_tensor(*cpu_, DType::fp64, {2, 2}, 1), y = poisoned_tensor(*cpu_, DType::fp64, {2, 2});
  EXPECT_THROW(make(prefer_fused)->linear(stream_, x, x, {}, Activation::none, {}, y), ConfigError);
}

}  // namespace
}  // namespace trireme::cuda
