// Products in FP8 by cuBLASLt, against the CPU backend's in fp64, which round alike. Here on the fakes, and on a GPU.
#include <fmt/format.h>

#include <cmath>

#include "cuda/cublaslt/product.hpp"
#include "cuda/kernels/epilogue.hpp"
#include "cuda/kernels/gemm.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

struct Case {
  DType dtype;
  bool by_blocks, has_copies;
  std::int64_t n, in, out;
};
/// Extents with blocks that are not full.
const Case cases[] = {{DType::bf16, false, false, 48, 16, 80},  {DType::bf16, false, true, 144, 32, 48},
                      {DType::bf16, true, false, 144, 272, 32}, {DType::bf16, true, true, 272, 144, 160},
                      {DType::fp32, false, true, 16, 48, 32},   {DType::fp32, true, false, 32, 144, 16}};

class GpuFp8 : public GpuTest, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const int capability = device_->compute_capability();
    if (capability < 89) GTEST_SKIP() << "no products in FP8 before compute capability 8.9";
    if (GetParam().by_blocks && (capability != 90 || !cuda::Products::has_block_scales()))
      GTEST_SKIP() << "no products in FP8 with scales of blocks";
    gemm_ = cuda::make_gemm(device_, memory_, std::make_unique<cuda::EventTimer>(), {});
  }

  /// An operand of both backends.
  struct Both {
    Tensor device, exact = {}, copied = {};
    Fp8Copy copy = {};
  };
  Both both(const Shape& shape, std::uint64_t seed) {
    Both tensor{random(GetParam().dtype, shape, seed)};
    tensor.exact = exact(tensor.device);
    if (!GetParam().has_copies) return tensor;
    tensor.copied = Tensor(*memory_, DType::uint8, {fp8_copy_bytes(shape[0], shape[1], GetParam().by_blocks)});
    tensor.copy.memory = tensor.copied;
    return tensor;
  }
  /// Rounding of a product of both, on the device or exactly.
  Fp8Product rounding(Both& first, Fp8Format format, Both& second, bool on_device) {
    const auto operand = [&](Both& tensor, Fp8Format of) {
      Fp8Operand made{.format = of};
      if (!GetParam().by_blocks) made.amax = on_device ? amax_ : exact_amax_;
      if (on_device && GetParam().has_copies) made.copy = &tensor.copy;
      return made;
    };
    return {operand(first, format), operand(second, Fp8Format::e4m3), 1};
  }
  /// Sums of a forward may stay in short accumulators on a GPU, which drop the last bits of terms.
  void expect_equal(ConstTensorView device, ConstTensorView expected, const std::string& what, bool fast = false) {
    const Tolerance close = tolerance(device.dtype(), Operation::sum, DType::fp32);
    const Tolerance shortened{std::ldexp(1.0, -8), std::ldexp(1.0, -8)};
    const bool is_fake = device_->location().device_name.starts_with("Fake");
    expect_close(values(device), values_of(*cpu_, expected),
                 fast && !is_fake ? shortened : Tolerance{3 * close.relative, close.absolute + 2 * close.relative},
                 what);
  }

  std::unique_ptr<GemmKernels> gemm_;
  Tensor amax_, exact_amax_;
};

INSTANTIATE_TEST_SUITE_P(Cases, GpuFp8, testing::ValuesIn(cases), [](const auto& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}_{}_{}x{}x{}", name_of(c.dtype), c.by_blocks ? "blocks" : "whole",
                     c.has_copies ? "copies" : "alone", c.n, c.in, c.out);
});

TEST_P(GpuFp8, ProductsMatchTheCpu) {
  const auto& [dtype, by_blocks, has_copies, n, in, out] = GetParam();
  exact_amax_ = make_tensor(*cpu_, DType::fp64, {1}, {0.4});
  amax_ = upload(exact_amax_);
  Both x = both({n, in}, 1), w = both({out, in}, 2), dy = both({n, out}, 3);
  const Tensor bias = random(dtype, {out}, 4), exact_bias = exact(bias);
  for (int repetition = 0; repetition < 2; ++repetition) {  // measured, then chosen; rounded, then read
    for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
      const Tensor z = poisoned(dtype, {n, out}), y = poisoned(dtype, {n, out});
      const Tensor exact_z(*cpu_, DType::fp64, {n, out}), exact_y(*cpu_, DType::fp64, {n, out});
      gemm_->linear(*stream_, x.device, w.device, bias, activation, z, y, rounding(x, Fp8Format::e4m3, w, true));
      cpu_->gemm().linear(cpu_->compute_stream(), x.exact, w.exact, exact_bias, activation, exact_z, exact_y,
                          rounding(x, Fp8Format::e4m3, w, false));
      expect_equal(y, exact_y, "y", true);
      if (activation != Activation::none) expect_equal(z, exact_z, "z", true);
      // The kept values of a layer below.
      const Tensor dx = poisoned(dtype, {n, in}), exact_dx(*cpu_, DType::fp64, {n, in});
      gemm_->linear_backward_input(*stream_, dy.device, w.device, activation, x.device, dx,
                                   rounding(dy, Fp8Format::e5m2, w, true));
      cpu_->gemm().linear_backward_input(cpu_->compute_stream(), dy.exact, w.exact, activation, x.exact, exact_dx,
                                         rounding(dy, Fp8Format::e5m2, w, false));
      expect_equal(dx, exact_dx, "dx");
    }
    for (const ProductSum sum : {ProductSum::overwrite, ProductSum::add}) {
      const Tensor dw = random(DType::fp32, {out, in}, 7), dbias = random(DType::fp32, {out}, 8);
      const Tensor exact_dw = exact(dw), exact_dbias = exact(dbias);
      gemm_->linear_backward_weight(*stream_, dy.device, x.device, dw, dbias, sum,
                                    rounding(dy, Fp8Format::e5m2, x, true));
      cpu_->gemm().linear_backward_weight(cpu_->compute_stream(), dy.exact, x.exact, exact_dw, exact_dbias, sum,
                                          rounding(dy, Fp8Format::e5m2, x, false));
      expect_equal(dw, exact_dw, "dw");
      expect_equal(dbias, exact_dbias, "dbias");
    }
    EXPECT_EQ(w.copy.made, has_copies);
  }
}

// The bits are those of the activation's own kernel, except for the order in which the bias' gradient is summed.
TEST_P(GpuFp8, OperandsMayBeResultsOfAnActivation) {
  const auto& [dtype, by_blocks, has_copies, n, in, out] = GetParam();
  amax_ = upload(make_tensor(*cpu_, DType::fp64, {1}, {0.4}));
  Both z = both({n, in}, 1), w = both({out, in}, 2), dy = both({n, out}, 3), slopes = both({n, out}, 4);
  Both activated = both({n, in}, 5), gradient = both({n, out}, 6);
  cuda::bias_activation(*stream_, dtype, n, in, nullptr, Activation::gelu_tanh, z.device.view().data(), false,
                        activated.device.view().data());
  cuda::copy(*stream_, dy.device, gradient.device);
  cuda::activation_backward(*stream_, dtype, n * out, Activation::gelu_tanh, slopes.device.view().data(),
                            gradient.device.view().data());
  if (has_copies) {  // room for sums
    dy.copied = Tensor(*memory_, DType::uint8, {fp8_copy_bytes(n, out, by_blocks) + fp8_sums_bytes(n, out)});
    dy.copy = {.memory = dy.copied, .has_sums = true};
  }
  const auto results = [&](Both& x, Both& of_outputs, bool from_sources) {
    const Tensor y = poisoned(dtype, {n, out}), dx = poisoned(dtype, {n, in});
    const Tensor dw = poisoned(DType::fp32, {out, in}),
                 dbias = upload(make_tensor(*cpu_, DType::fp32, {out}, std::vector<double>(out, 1.0)));
    Fp8Product forward = rounding(x, Fp8Format::e4m3, w, true),
               backward = rounding(of_outputs, Fp8Format::e5m2, w, true);
    Fp8Product weight = rounding(of_outputs, Fp8Format::e5m2, x, true);
    if (from_sources) {
      forward.first.source = weight.second.source = {Activation::gelu_tanh};
      backward.first.source = weight.first.source = {Activation::gelu_tanh, slopes.device};
    }
    gemm_->linear(*stream_, x.device, w.device, {}, Activation::none, {}, y, forward);
    gemm_->linear_backward_input(*stream_, of_outputs.device, w.device, Activation::none, {}, dx, backward);
    gemm_->linear_backward_weight(*stream_, of_outputs.device, x.device, dw, dbias, ProductSum::overwrite, weight);
    return std::vector{values(y), values(dx), values(dw), values(dbias)};
  };
  const auto fused = results(z, dy, true), apart = results(activated, gradient, false);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fused[i], apart[i]) << i;
  expect_close(fused[3], apart[3], tolerance(DType::fp32, Operation::sum), "dbias");
}

TEST_P(GpuFp8, ExtentsAreMultiplesOf16) {
  Both x = both({24, 16}, 1), w = both({32, 16}, 2);
  const Tensor y = poisoned(GetParam().dtype, {24, 32});
  amax_ = upload(make_tensor(*cpu_, DType::fp64, {1}, {0.4}));
  EXPECT_EQ(message_of<ShapeError>([&] {
              gemm_->linear(*stream_, x.device, w.device, {}, Activation::none, {}, y,
                            rounding(x, Fp8Format::e4m3, w, true));
            }),
            "an operand in FP8 is 24 x 16, but cuBLASLt needs multiples of 16");
}

}  // namespace
}  // namespace trireme::test
