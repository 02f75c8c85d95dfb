// Products by cuBLASLt, against the CPU backend in fp64. The fake cuBLASLt computes the products that the library
// documents. It shows which algorithm is taken, and that every tensor has its place.
#include <gmock/gmock.h>

#include <filesystem>

#include "cuda/kernels/gemm.hpp"
#include "cuda/runtime/error.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "tests/fakes/fake_cublaslt.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::cuda {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

/// Takes times from a function of the product that was just enqueued.
class ScriptedTimer final : public WorkTimer {
 public:
  using Cost = std::function<double(const fake_cublaslt::Last&)>;
  ScriptedTimer(Cost cost, int& measured) : cost_(std::move(cost)), measured_(measured) {}
  double time_us(CudaStream&, const std::function<void()>& run) override {
    const int before = fake_cublaslt::products();
    run();
    ++measured_;
    return cost_(fake_cublaslt::last()) * (fake_cublaslt::products() - before);
  }

 private:
  Cost cost_;
  int& measured_;
};

double prefer_fused(const fake_cublaslt::Last& last) { return last.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 200 : 100; }
double prefer_separate(const fake_cublaslt::Last& last) { return 300 - prefer_fused(last); }

class CudaGemm : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cuda::start_kernels_on_streams();
    fake_cublaslt::reset();
    measured_ = 0;
  }
  std::unique_ptr<GemmKernels> make(const ScriptedTimer::Cost& cost, const GemmOptions& options = {}) {
    return make_gemm(device_, memory_, std::make_unique<ScriptedTimer>(cost, measured_), options);
  }
  /// y of a product with bias.
  std::vector<double> multiply(GemmKernels& gemm) {
    const Tensor x = random_tensor(*cpu_, DType::bf16, {8, 16}, 1), w = random_tensor(*cpu_, DType::bf16, {24, 16}, 2);
    const Tensor bias = random_tensor(*cpu_, DType::bf16, {24}, 3), y = poisoned_tensor(*cpu_, DType::bf16, {8, 24});
    gemm.linear(stream_, x, w, bias, Activation::none, {}, y);
    stream_.synchronize();
    return values_of(*cpu_, y);
  }

  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{0, "node7", 0, ""}, LaunchChecks::deferred);
  std::shared_ptr<DeviceMemory> memory_ = std::make_shared<DeviceMemory>(device_);
  CudaStream stream_{device_};
  std::unique_ptr<Backend> cpu_ = cpu::make_backend(1);
  int measured_ = 0;
};

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

TEST_F(CudaGemm, TakesTheFormAndAlgorithmOfLeastTimeAndRemembersThem) {
  const auto gemm = make([](const fake_cublaslt::Last& last) {
    return last.epilogue == CUBLASLT_EPILOGUE_DEFAULT && last.algorithm == 2 ? 1.0 : 5.0;
  });
  multiply(*gemm);
  EXPECT_EQ(measured_, 2 * 3 * 6) << "two forms of three algorithms, six times each";
  EXPECT_EQ(fake_cublaslt::last().algorithm, 2u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  const int products = fake_cublaslt::products(), searches = fake_cublaslt::searches();
  multiply(*gemm);
  EXPECT_EQ(fake_cublaslt::products(), products + 1);
  EXPECT_EQ(fake_cublaslt::searches(), searches);
}

TEST_F(CudaGemm, OfEqualTimesTheFusedFormAndTheFirstSuggestionStand) {
  multiply(*make([](const fake_cublaslt::Last&) { return 1.0; }));
  EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
}

TEST_F(CudaGemm, AnEpilogueThatCannotBeFusedRunsInItsOwnKernel) {
  const std::vector<double> fused = multiply(*make(prefer_fused));
  fake_cublaslt::behaviour().cannot_fuse = {CUBLASLT_EPILOGUE_BIAS};
  const std::vector<double> separate = multiply(*make(prefer_fused));
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  const Tolerance once = tolerance(DType::bf16, Operation::sum);
  expect_close(separate, fused, {3 * once.relative, once.absolute + 2 * once.relative}, "separate against fused");
}

TEST_F(CudaGemm, TestsReachTheFormThatTimesDoNotChoose) {
  for (const bool fused_is_faster : {true, false}) {
    const auto gemm = make(fused_is_faster ? prefer_fused : prefer_separate);
    for (const auto& [form, is_fused] : {std::pair{EpilogueForm::chosen, fused_is_faster},
                                         {EpilogueForm::fused, true},
                                         {EpilogueForm::separate, false},
                                         {EpilogueForm::chosen, fused_is_faster}}) {
      EXPECT_TRUE(gemm->set_epilogue_form(form));
      multiply(*gemm);
      EXPECT_EQ(gemm->latest_epilogue_is_fused(), is_fused);
      EXPECT_EQ(fake_cublaslt::last().epilogue, is_fused ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
    }
    gemm->separate_latest_epilogue();
    EXPECT_TRUE(gemm->set_epilogue_form(EpilogueForm::fused));
    multiply(*gemm);
    EXPECT_FALSE(gemm->latest_epilogue_is_fused());
  }
}

TEST_F(CudaGemm, DeterministicTakesTheFirstSuggestionAndMeasuresNothing) {
  const TemporaryDirectory folder;
  const std::string file = folder / "algorithms";
  multiply(*make(prefer_separate, {.deterministic = true, .cache_file = file}));
  EXPECT_EQ(measured_, 0);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(CudaGemm, TheNextRunTakesItsChoicesFromTheFile) {
  const TemporaryDirectory folder;
  const GemmOptions options{.cache_file = folder / "algorithms"};
  const auto second_best = [](const fake_cublaslt::Last& last) { return last.algorithm == 1 ? 1.0 : 2.0; };
  multiply(*make(second_best, options));
  measured_ = 0;
  multiply(*make(prefer_separate, options));
  EXPECT_EQ(measured_, 0);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
  // TF32 is another product.
  multiply(*make(second_best, {.allow_tf32 = true, .cache_file = options.cache_file}));
  EXPECT_GT(measured_, 0);
}

TEST_F(CudaGemm, AKeptAlgorithmThatTheLibraryRefusesIsChosenAnew) {
  const TemporaryDirectory folder;
  const GemmOptions options{.cache_file = folder / "algorithms"};
  multiply(*make([](const fake_cublaslt::Last& last) { return last.algorithm == 2 ? 1.0 : 2.0; }, options));
  fake_cublaslt::behaviour().usable_algorithms = 2;
  fake_cublaslt::behaviour().algorithms = 2;
  measured_ = 0;
  multiply(*make(prefer_fused, options));
  EXPECT_GT(measured_, 0);
  // It fails in the query, or in the run.
  const std::uint64_t kept = fake_cublaslt::last().algorithm;
  fake_cublaslt::behaviour().refused = {kept};
  measured_ = 0;
  multiply(*make(prefer_fused, options));
  EXPECT_GT(measured_, 0);
  EXPECT_NE(fake_cublaslt::last().algorithm, kept);
}

TEST_F(CudaGemm, ASuggestionThatTheLibraryRefusesIsPassedOver) {
  for (const bool deterministic : {false, true}) {
    fake_cublaslt::behaviour().refused = {0, 2};
    multiply(*make(prefer_fused, {.deterministic = deterministic, .cache_file = ""}));
    EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
    fake_cublaslt::behaviour().refused = {0, 1, 2};
    EXPECT_THROW(multiply(*make(prefer_fused, {.deterministic = deterministic, .cache_file = ""})), CublasError);
  }
}

TEST_F(CudaGemm, AProductWithoutAlgorithmIsAnErrorThatNamesIt) {
  fake_cublaslt::behaviour().algorithms = 0;
  try {
    multiply(*make(prefer_fused));
    FAIL() << "no error";
  } catch (const CublasError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no algorithm for the product bf16 bf16 TN 24x8x16 = bias align 16"),
                                    HasSubstr("rank 0 on node7, GPU 0 (Fake H200)")));
  }
}

TEST_F(CudaGemm, WithoutMemoryForTheMeasurementItTakesTheFirstSuggestion) {
  const Tensor dy = random_tensor(*cpu_, DType::bf16, {8, 24}, 1), x = random_tensor(*cpu_, DType::bf16, {8, 16}, 2);
  const Tensor dw = random_tensor(*cpu_, DType::fp32, {24, 16}, 3);
  fake_cuda::fail_next("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  make(prefer_fused)->linear_backward_weight(stream_, dy, x, dw, {});
  stream_.synchronize();
  EXPECT_EQ(measured_, 0);
  EXPECT_EQ(fake_cublaslt::products(), 1);
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
