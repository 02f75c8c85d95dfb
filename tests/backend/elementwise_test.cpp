#include "src/backend/kernels/elementwise.hpp"

#include <gtest/gtest.h>

#include "tests/support/activations.hpp"
#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16};
constexpr std::int64_t sizes[] = {0, 1, 31, 33, 1025, 40'000};
constexpr double infinity = std::numeric_limits<double>::infinity();

class Elementwise : public KernelTest {
 protected:
  ElementwiseKernels& kernels() { return b().elementwise(); }
  /// Global numbers of the samples of a micro-batch, beyond 32 bits.
  const std::vector<std::int64_t> numbers_ = {7, 1, (std::int64_t{5} << 32) + 3};
  Tensor samples_ = samples_tensor(b(), numbers_);
  Dropout dropout(double probability) const {
    Dropout result(probability, 1234, 3, DropoutSite::mlp_output, samples_.view().as<std::int64_t>());
    result.positions = {100, 3, 40};  // in two pieces
    return result;
  }
  /// Dropout factors of the elements (position, sample, channel).
  std::vector<double> factors(const Dropout& dropout, std::int64_t s, std::int64_t batch, std::int64_t h) const {
    std::vector<double> factor;
    for (std::int64_t p = 0; p < s; ++p) {
      for (std::int64_t i = 0; i < batch; ++i) {
        for (std::int64_t c = 0; c < h; ++c) {
          factor.push_back(dropout.keeps(dropout.key, numbers_[i], dropout.positions[p], c) ? double{dropout.scale}
                                                                                            : 0);
        }
      }
    }
    return factor;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, Elementwise, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(Elementwise, FillWritesEveryElementRounded) {
  for (const std::int64_t n : sizes) {
    const Tensor y = poisoned_tensor(b(), dtype(), {n});
    kernels().fill(stream(), 1.0 / 3, y);
    expect_close(values_of(b(), y), std::vector<double>(n, 1.0 / 3), tolerance(dtype(), Operation::rounding, dtype()),
                 fmt::format("{} elements", n));
  }
}

TEST_P(Elementwise, ConvertRoundsToNearest) {
  for (const DType to : dtypes) {
    for (const std::int64_t n : sizes) {
      // Via fp32, from which the test's own conversion rounds once.
      const Tensor x = converted(b(), random_tensor(b(), DType::fp32, {n}, 1, -100, 100), dtype());
      const Tensor y = poisoned_tensor(b(), to, {n});
      kernels().convert(stream(), x, y);
      EXPECT_EQ(values_of(b(), y), values_of(b(), converted(b(), x, to))) << name_of(to) << ", " << n << " elements";
    }
    const Tensor special = make_tensor(b(), dtype(), {4}, {infinity, -infinity, std::nan(""), -0.0});
    const Tensor y = make_tensor(b(), to, {4}, {1, 1, 1, 1});
    kernels().convert(stream(), special, y);
    const std::vector<double> values = values_of(b(), y);
    EXPECT_EQ(values[0], infinity);
    EXPECT_EQ(values[1], -infinity);
    EXPECT_TRUE(std::isnan(values[2]));
    EXPECT_TRUE(values[3] == 0 && std::signbit(values[3]));
  }
}

TEST(Convert, RoundsOnceFromFp64AndTiesToEven) {
  TRIREME_NEEDS_FP64_KERNELS();
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const auto convert = [&](double value, DType to) {
    const Tensor y = poisoned_tensor(b, to, {1});
    b.elementwise().convert(b.compute_stream(), make_tensor(b, DType::fp64, {1}, {value}), y);
    return values_of(b, y)[0];
  };
  // Half an ulp above 1 ties to 1; slightly more, which fp32 cannot represent, rounds to the next number.
  const double half_bf16 = std::ldexp(1.0, -8), half_fp16 = std::ldexp(1.0, -11), hair = std::ldexp(1.0, -40);
  EXPECT_EQ(convert(1 + half_bf16, DType::bf16), 1);
  EXPECT_EQ(convert(1 + half_bf16 + hair, DType::bf16), 1 + 2 * half_bf16);
  EXPECT_EQ(convert(-1 - half_bf16 - hair, DType::bf16), -1 - 2 * half_bf16);
  EXPECT_EQ(convert(1 + half_bf16 - hair, DType::bf16), 1);
  EXPECT_EQ(convert(1 + 3 * half_bf16, DType::bf16), 1 + 4 * half_bf16);
  EXPECT_EQ(convert(1e300, DType::bf16), infinity);
  EXPECT_EQ(convert(1 + half_fp16, DType::fp16), 1);
  EXPECT_EQ(convert(1 + half_fp16 + hair, DType::fp16), 1 + 2 * half_fp16);
  EXPECT_EQ(convert(1 + half_fp16 - hair, DType::fp16), 1);
  EXPECT_EQ(convert(1e6, DType::fp16), infinity);
}

TEST_P(Elementwise, AddMultiplyAndScaleUpdateInPlace) {
  for (const std::int64_t n : sizes) {
    const Tensor x = random_tensor(b(), dtype(), {n}, 1), y = random_tensor(b(), dtype(), {n}, 2);
    const std::vector<double> added = values_of(b(), x);
    std::vector<double> expected = values_of(b(), y);
    for (std::int64_t i = 0; i < n; ++i) expected[i] += added[i];
    kernels().add(stream(), x, y);
    expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise), "add");
    expected = values_of(b(), y);
    for (std::int64_t i = 0; i < n; ++i) expected[i] *= added[i];
    kernels().multiply(stream(), x, y);
    expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise), "multiply");
    expected = values_of(b(), y);
    for (double& value : expected) value *= -2.5;
    kernels().scale(stream(), -2.5, y);
    expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise), "scale");
  }
}

TEST_P(Elementwise, SoftCapBoundsInPlace) {
  for (const std::int64_t n : sizes) {
    const Tensor y = random_tensor(b(), dtype(), {n}, 1, -20, 20);
    std::vector<double> expected = values_of(b(), y);
    for (double& value : expected) value = 4 * std::tanh(value / 4);
    kernels().soft_cap(stream(), 4, y);
    expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise), "soft_cap");
  }
  EXPECT_THROW(kernels().soft_cap(stream(), 0, random_tensor(b(), dtype(), {1}, 1)), ShapeError);
}

TEST_P(Elementwise, DivideByNormsReadsTheSumsOfSquaresOnTheDevice) {
  constexpr double least = 1e-2;
  const std::vector<double> squares = {6.25, 0.0, 1e-8};
  const Tensor sums = make_tensor(b(), DType::fp64, {3}, squares);
  for (const std::int64_t n : sizes) {
    const Tensor x = random_tensor(b(), dtype(), {3, n}, 1), y = poisoned_tensor(b(), dtype(), {3, n});
    std::vector<double> expected = values_of(b(), x);
    for (std::int64_t i = 0; i < 3 * n; ++i) expected[i] /= std::max(std::sqrt(squares[i / n]), least);
    kernels().divide_by_norms(stream(), sums, least, x, y);
    expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise), fmt::format("{} x 3", n));
    kernels().divide_by_norms(stream(), sums, least, x, x);
    EXPECT_EQ(values_of(b(), x), values_of(b(), y)) << n << " x 3, in place";
  }
  const Tensor seven = random_tensor(b(), dtype(), {7}, 1);
  EXPECT_THROW(kernels().divide_by_norms(stream(), sums, least, seven, seven), ShapeError);
}

TEST_P(Elementwise, ActivateMatchesTheDefinition) {
  for (const Activation activation : all_activations) {
    for (const std::int64_t n : sizes) {
      // Far to the left one of many results may vanish, a single one must not.
      const Tensor x = random_tensor(b(), dtype(), {n}, 1, n == 1 ? 0.5 : -6, 6);
      const Tensor y = poisoned_tensor(b(), dtype(), {n});
      std::vector<double> expected = values_of(b(), x);
      for (double& v : expected) v = test::activated(activation, v);
      kernels().activate(stream(), activation, x, y);
      expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise),
                   fmt::format("{} elements", n));
    }
  }
}

TEST_P(Elementwise, ActivateBackwardMatchesTheDefinition) {
  for (const Activation activation : all_activations) {
    for (const std::int64_t n : sizes) {
      const Tensor x = random_tensor(b(), dtype(), {n}, 1, -6, 6), dy = random_tensor(b(), dtype(), {n}, 2);
      std::vector<double> expected = values_of(b(), dy);
      const std::vector<double> at = values_of(b(), x);
      for (std::size_t i = 0; i < at.size(); ++i) expected[i] *= test::activation_slope(activation, at[i]);
      kernels().activate_backward(stream(), activation, dy, x, dy);  // in place
      expect_close(values_of(b(), dy), expected, tolerance(dtype(), Operation::elementwise),
                   fmt::format("{} elements", n));
    }
  }
}

TEST_P(Elementwise, BiasDropoutAddMatchesTheDefinition) {
  for (const std::int64_t h : {0, 1, 31, 33, 64, 1025}) {
    for (const std::int64_t s : {0, 1, 33}) {
      for (const double probability : {0.0, 0.1, 0.5}) {
        for (const bool with_bias : {false, true}) {
          const Shape shape{s, 3, h};
          const Tensor x = random_tensor(b(), dtype(), shape, 1), residual = random_tensor(b(), dtype(), shape, 2);
          const Tensor bias = random_tensor(b(), dtype(), {h}, 3), sum = poisoned_tensor(b(), dtype(), shape);
          const Dropout drop = dropout(probability);
          const TensorView given_bias = with_bias ? bias.view() : TensorView();
          kernels().bias_dropout_add(stream(), x, given_bias, residual, drop, sum);
          const std::vector<double> xs = values_of(b(), x), biases = values_of(b(), bias),
                                    factor = factors(drop, s, 3, h);
          std::vector<double> expected = values_of(b(), residual);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] += factor[i] * (xs[i] + (with_bias ? biases[i % h] : 0));
          }
          expect_close(values_of(b(), sum), expected, tolerance(dtype(), Operation::elementwise),
                       fmt::format("s {}, h {}, dropout {}", s, h, probability));
          kernels().bias_dropout_add(stream(), x, given_bias, residual, drop, x);
          EXPECT_EQ(bytes_of(b(), x), bytes_of(b(), sum)) << "in place";
        }
      }
    }
  }
}

TEST_P(Elementwise, BiasDropoutAddBackwardMatchesTheDefinition) {
  for (const std::int64_t h : {0, 1, 31, 33, 64, 1025}) {
    for (const std::int64_t s : {0, 1, 33}) {
      for (const double probability : {0.0, 0.1, 0.5}) {
        for (const bool with_bias : {false, true}) {
          const Shape shape{s, 3, h};
          const Tensor dsum = random_tensor(b(), dtype(), shape, 1), dx = poisoned_tensor(b(), dtype(), shape);
          const Tensor dbias = random_tensor(b(), accumulation(), {h}, 2);
          const Dropout drop = dropout(probability);
          std::vector<double> expected = values_of(b(), dsum), expected_bias = values_of(b(), dbias);
          const std::vector<double> factor = factors(drop, s, 3, h);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] *= factor[i];
            if (with_bias) expected_bias[i % h] += expected[i];
          }
          kernels().bias_dropout_add_backward(stream(), dsum, drop, dx, with_bias ? dbias.view() : TensorView());
          const std::string what = fmt::format("s {}, h {}, dropout {}", s, h, probability);
          expect_close(values_of(b(), dx), expected, tolerance(dtype(), Operation::elementwise), what);
          expect_close(values_of(b(), dbias), expected_bias, tolerance(accumulation(), Operation::sum), what);
          kernels().bias_dropout_add_backward(stream(), dsum, drop, dsum, {});
          EXPECT_EQ(bytes_of(b(), dsum), bytes_of(b(), dx)) << "in place";
        }
      }
    }
  }
}

TEST_P(Elementwise, BitsDoNotDependOnThreads) {
  const Shape shape{300, 3, 257};
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3}) {
    samples_ = {};  // its backend ends
    backend_ = test::make_backend(threads);
    samples_ = samples_tensor(b(), numbers_);
    const Tensor x = random_tensor(b(), dtype(), shape, 1), bias = random_tensor(b(), dtype(), {257}, 2);
    const Tensor sum = random_tensor(b(), dtype(), shape, 3), dx = poisoned_tensor(b(), dtype(), shape);
    const Tensor dbias = random_tensor(b(), accumulation(), {257}, 4);
    kernels().bias_dropout_add(stream(), x, bias, sum, dropout(0.1), sum);
    kernels().bias_dropout_add_backward(stream(), sum, dropout(0.1), dx, dbias);
    kernels().add(stream(), dx, sum);
    kernels().scale(stream(), 0.3, sum);
    std::vector<std::vector<std::byte>> bits;
    for (const TensorView tensor : {sum.view(), dx.view(), dbias.view()}) bits.push_back(bytes_of(b(), tensor));
    if (first.empty()) first = bits;
    EXPECT_TRUE(bits == first) << threads << " threads";
  }
}

}  // namespace
}  // namespace trireme
