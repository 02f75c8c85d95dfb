// Products by cuBLASLt, against the CPU backend in fp64. Here on the fakes, whose cuBLASLt computes the products that
// the library documents, and on a GPU.
#include <fmt/format.h>

#include <map>

#include "cuda/kernels/gemm.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

struct Extents {
  std::int64_t n, in, out;
};
// Small and odd, and those of GPT-2 124M at 2048 tokens.
constexpr Extents small_extents[] = {{0, 3, 4}, {5, 0, 3}, {1, 1, 1}, {31, 33, 17}, {600, 8, 24}};
constexpr Extents large_extents[] = {{31, 33, 1025}, {1025, 31, 33}, {64, 64, 64}, {2048, 768, 3072}};

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
    extents_.assign(std::begin(small_extents), std::end(small_extents));
    const bool is_fake = device_->location().device_name.starts_with("Fake");
    if (!is_fake) extents_.insert(extents_.end(), std::begin(large_extents), std::end(large_extents));
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
  std::vector<Extents> extents_;
  std::map<std::string, std::unique_ptr<GemmKernels>> gemms_;
};
INSTANTIATE_TEST_SUITE_P(Types, GpuGemm, testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(GpuGemm, LinearMatchesTheCpu) {
  for (const auto& [n, in, out] : extents_) {
    const Tensor x = random(GetParam(), {n, in}, 1), w = random(GetParam(), {out, in}, 2);
    const Tensor bias = random(GetParam(), {out}, 3), exact_bias = exact(bias);
    for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf}) {
      for (const int given : {0, 1, 2, 3}) {
        if (n > 2000 && given < 3) continue;  // the CPU takes long
        const bool has_bias = (given & 1) != 0, keeps = (given & 2) != 0;
        const Tensor exact_z(*cpu_, DType::fp64, {n, out}), exact_y(*cpu_, DType::fp64, {n, out});
        cpu_->gemm().linear(cpu_->compute_stream(), exact(x), exact(w),
                            has_bias ? ConstTensorView(exact_bias) : ConstTensorView(), activation, exact_z, exact_y);
        for (const auto& [name, gemm] : gemms_) {
          const Tensor z = poisoned(GetParam(), {n, out}), y = poisoned(GetParam(), {n, out});
          gemm->linear(*stream_, x, w, has_bias ? ConstTensorView(bias) : ConstTensorView(), activation,
                       keeps ? z.view() : TensorView(), y);
          const std::string what =
              fmt::format("{} {} {}, activation {}, parts {}", n, in, out, static_cast<int>(activation), given);
          expect_equal(y, exact_y, name, what);
          if (keeps && activation != Activation::none) expect_equal(z, exact_z, name, what + ", pre-activation");
        }
      }
    }
  }
}

TEST_P(GpuGemm, BackwardMatchesTheCpu) {
  for (const auto& [n, in, out] : extents_) {
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
      for (const bool has_bias : {true, false}) {
        gemm->linear_backward_weight(*stream_, dy, x, dw, has_bias ? dbias.view() : TensorView());
        cpu_->gemm().linear_backward_weight(cpu_->compute_stream(), exact(dy), exact(x), exact_dw,
                                            has_bias ? exact_dbias.view() : TensorView());
      }
      const std::string what = fmt::format("{} {} {}", n, in, out);
      expect_equal(dw, exact_dw, name, what);
      expect_equal(dbias, exact_dbias, name, what + ", bias");
    }
  }
}

TEST_P(GpuGemm, BatchedProductsMatchTheCpu) {
  struct Batch {
    std::int64_t count, rows, columns;
  };
  for (const auto& [count, rows, columns] : {Batch{1, 8, 24}, {3, 8, 24}, {3, 7, 5}}) {
    const Tensor x = random(GetParam(), {count, rows, columns}, 1), square = random(GetParam(), {count, rows, rows}, 2);
    const Tensor exact_gram(*cpu_, DType::fp64, {count, rows, rows}), exact_sum(*cpu_, DType::fp64, x.view().shape());
    const BatchedProduct gram_of{.b_transposed = true}, sum_of{.a_transposed = true, .alpha = 0.5, .beta = 2};
    cpu_->gemm().batched(cpu_->compute_stream(), gram_of, exact(x), exact(x), {}, exact_gram);
    cpu_->gemm().batched(cpu_->compute_stream(), sum_of, exact(square), exact(x), exact(x), exact_sum);
    for (const auto& [name, gemm] : gemms_) {
      const Tensor gram = poisoned(GetParam(), {count, rows, rows}), sum = poisoned(GetParam(), x.view().shape());
      for (int repetition = 0; repetition < 2; ++repetition) {  // measured, then chosen
        gemm->batched(*stream_, gram_of, x, x, {}, gram);
        gemm->batched(*stream_, sum_of, square, x, x, sum);
        const std::string what = fmt::format("{} of {} x {}", count, rows, columns);
        expect_equal(gram, exact_gram, name, what);
        expect_equal(sum, exact_sum, name, what);
      }
    }
  }
}

TEST_P(GpuGemm, GroupedProductsMatchTheCpu) {
  const std::vector<std::int64_t> rows = {3, 0, 70, 1, 3, 40, 3};
  constexpr std::int64_t all = 120, in = 24, out = 40;
  const Tensor x = random(GetParam(), {all, in}, 1), dy = random(GetParam(), {all, out}, 2);
  for (const auto& [name, gemm] : gemms_) {
    std::vector<Tensor> tensors;
    std::vector<TensorView> w, dw, exact_w, exact_dw;
    const auto keep = [&](std::vector<TensorView>& list, Tensor tensor) {
      list.push_back(tensor.view());
      tensors.push_back(std::move(tensor));
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      keep(w, random(GetParam(), {out, in}, 10 + i));
      keep(dw, random(DType::fp32, {out, in}, 20 + i));
      keep(exact_w, exact(w.back()));
      keep(exact_dw, exact(dw.back()));
    }
    const Tensor y = poisoned(GetParam(), {all, out}), dx = poisoned(GetParam(), {all, in});
    gemm->grouped_linear(*stream_, rows, x, w, y);
    gemm->grouped_backward_input(*stream_, rows, dy, w, dx);
    gemm->grouped_backward_weight(*stream_, rows, dy, x, dw);
    const Tensor exact_y(*cpu_, DType::fp64, {all, out}), exact_dx(*cpu_, DType::fp64, {all, in});
    Stream& stream = cpu_->compute_stream();
    cpu_->gemm().grouped_linear(stream, rows, exact(x), exact_w, exact_y);
    cpu_->gemm().grouped_backward_input(stream, rows, exact(dy), exact_w, exact_dx);
    cpu_->gemm().grouped_backward_weight(stream, rows, exact(dy), exact(x), exact_dw);
    expect_equal(y, exact_y, name, "y");
    expect_equal(dx, exact_dx, name, "dx");
    for (std::size_t i = 0; i < rows.size(); ++i) expect_equal(dw[i], exact_dw[i], name, fmt::format("dw of {}", i));
  }
}

}  // namespace
}  // namespace trireme::test
