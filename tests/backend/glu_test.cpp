#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/activations.hpp"
#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

/// n rows of gate and up, f columns each, and the gradient of the results.
struct Rows {
  std::int64_t n = 0, f = 0;
  std::vector<double> gate_up, dy;  // given; rounded to the type by `compute`
  std::vector<double> y, dgate_up;  // computed
  std::vector<double> expected_y, expected_dgate_up;
};

void compute(DType dtype, Rows& rows, int threads = 2, bool in_place = false,
             Activation activation = Activation::silu) {
  const auto backend = test::make_backend(threads);
  Backend& b = *backend;
  const Tensor gate_up = make_tensor(b, dtype, {rows.n, 2 * rows.f}, rows.gate_up);
  const Tensor dy = make_tensor(b, dtype, {rows.n, rows.f}, rows.dy);
  const Tensor y = poisoned_tensor(b, dtype, {rows.n, rows.f});
  const Tensor dgate_up = poisoned_tensor(b, dtype, {rows.n, 2 * rows.f});
  rows.gate_up = values_of(b, gate_up);
  rows.dy = values_of(b, dy);
  b.elementwise().glu(b.compute_stream(), activation, gate_up, y);
  const TensorView to = in_place ? gate_up.view() : dgate_up.view();
  b.elementwise().glu_backward(b.compute_stream(), activation, dy, gate_up, to);
  rows.y = values_of(b, y);
  rows.dgate_up = values_of(b, to);

  rows.expected_y.clear();
  rows.expected_dgate_up.assign(rows.gate_up.size(), 0);
  for (std::int64_t i = 0; i < rows.n; ++i) {
    for (std::int64_t j = 0; j < rows.f; ++j) {
      const double gate = rows.gate_up[2 * i * rows.f + j], up = rows.gate_up[(2 * i + 1) * rows.f + j];
      const double gradient = rows.dy[i * rows.f + j];
      rows.expected_y.push_back(activated(activation, gate) * up);
      rows.expected_dgate_up[2 * i * rows.f + j] = gradient * up * activation_slope(activation, gate);
      rows.expected_dgate_up[(2 * i + 1) * rows.f + j] = gradient * activated(activation, gate);
    }
  }
}

Rows random_rows(std::int64_t n, std::int64_t f) {
  return {n, f, random_values(2 * n * f, 1, -4, 4), random_values(n * f, 2), {}, {}, {}, {}};
}

TEST(Swiglu, HandWorkedRow) {
  // silu(0) = 0 with slope 1/2; silu(ln 3) = 3/4 ln 3.
  const double x = std::log(3.0);
  Rows rows{1, 2, {0, x, 5, 2}, {1, 10}, {}, {}, {}, {}};
  compute(test::exact_type(), rows);
  const Tolerance close = tolerance(test::exact_type(), Operation::elementwise);
  expect_close(rows.y, std::vector<double>{0, 1.5 * x}, close, "y");
  expect_close(rows.dgate_up, std::vector<double>{2.5, 20 * (0.75 + x * 0.75 * 0.25), 0, 7.5 * x}, close, "dgate_up");
}

class SwigluTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Swiglu, SwigluTypes, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(SwigluTypes, MatchesTheDefinition) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    for (const auto& [n, f] :
         std::vector<std::pair<int, int>>{{0, 8}, {3, 0}, {1, 1}, {3, 31}, {31, 33}, {1025, 7}, {40, 1025}}) {
      Rows rows = random_rows(n, f);
      compute(GetParam(), rows, 2, n == 1, activation);
      const Tolerance close = tolerance(GetParam(), Operation::elementwise);
      expect_close(rows.y, rows.expected_y, close, fmt::format("y of {} rows of {}", n, f));
      expect_close(rows.dgate_up, rows.expected_dgate_up, close, fmt::format("dgate_up of {} rows of {}", n, f));
    }
  }
}

TEST_P(SwigluTypes, GradientMayReplaceItsInputAndThreadsDoNotMatter) {
  Rows one = random_rows(300, 130), two = one, in_place = one;
  compute(GetParam(), one, 1);
  compute(GetParam(), two, 2);
  compute(GetParam(), in_place, 2, true);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dgate_up, two.dgate_up);
  EXPECT_EQ(one.dgate_up, in_place.dgate_up);
}

TEST_P(SwigluTypes, LargeGatesAreFinite) {
  Rows rows{1, 4, {-60000, -800, 800, 60000, 1, 1, 1, 1}, {1, 1, 1, 1}, {}, {}, {}, {}};
  compute(GetParam(), rows);
  expect_close(rows.y, std::vector<double>{0, 0, rows.gate_up[2], rows.gate_up[3]},
               tolerance(GetParam(), Operation::rounding), "y");
  expect_close(rows.dgate_up, std::vector<double>{0, 0, 1, 1, 0, 0, rows.gate_up[2], rows.gate_up[3]},
               tolerance(GetParam(), Operation::rounding), "dgate_up");
}

TEST(Swiglu, OtherActivationsAreRefused) {
  Rows rows = random_rows(1, 2);
  EXPECT_THROW(compute(test::exact_type(), rows, 1, false, Activation::tanh), ShapeError);
}

TEST(Swiglu, BackwardMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    Rows rows = random_rows(3, 5);
    compute(DType::fp64, rows, 1, false, activation);
    const std::vector<double> gradient = rows.dgate_up;
    expect_derivative(
        rows.gate_up, gradient,
        [&] {
          compute(DType::fp64, rows, 1, false, activation);
          return std::inner_product(rows.y.begin(), rows.y.end(), rows.dy.begin(), 0.0);
        },
        "dgate_up");
  }
}

}  // namespace
}  // namespace trireme
