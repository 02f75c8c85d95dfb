#include "src/backend/kernels/reduce.hpp"

#include <gtest/gtest.h>

#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr double infinity = std::numeric_limits<double>::infinity();

class Reduce : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, Reduce, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(Reduce, AccumulatesInFp64) {
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 100'000}) {
    const Tensor x = random_tensor(b(), dtype(), {n}, 1, -0.5);  // terms that do not cancel
    const Tensor sum = make_tensor(b(), DType::fp64, {1}, {10}), squares = make_tensor(b(), DType::fp64, {1}, {20});
    long double expected_sum = 10, expected_squares = 20;
    for (const double value : values_of(b(), x)) {
      expected_sum += value;
      expected_squares += static_cast<long double>(value) * value;
    }
    b().reduce().sum(stream(), x, sum);
    b().reduce().sum_squares(stream(), x, squares);
    const Tolerance allowed = tolerance(DType::fp64, Operation::sum);
    expect_close(values_of(b(), sum), std::vector<double>{static_cast<double>(expected_sum)}, allowed,
                 fmt::format("sum of {}", n));
    expect_close(values_of(b(), squares), std::vector<double>{static_cast<double>(expected_squares)}, allowed,
                 fmt::format("squares of {}", n));
  }
}

TEST_P(Reduce, MeasuresPowersTheLargestAndZeros) {
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 100'000}) {
    std::vector<double> given = random_values(n, 1);
    for (std::size_t i = 0; i < given.size(); i += 3) given[i] = i % 2 == 0 ? 0.0 : -0.0;
    const Tensor x = make_tensor(b(), dtype(), {n}, given);
    for (const int power : {1, 2, 3, 5}) {
      const Tensor result = make_tensor(b(), DType::fp64, {1}, {10});
      long double expected = 10;
      for (const double value : values_of(b(), x))
        expected += std::pow(std::abs(static_cast<long double>(value)), power);
      b().reduce().sum_powers(stream(), x, power, result);
      expect_close(values_of(b(), result), std::vector<double>{static_cast<double>(expected)},
                   tolerance(DType::fp64, Operation::sum), fmt::format("|x|^{} of {}", power, n));
    }
    double largest = 0.125;
    for (const double value : values_of(b(), x)) largest = std::max(largest, std::abs(value));
    const Tensor result = make_tensor(b(), DType::fp64, {1}, {0.125}), zeros = make_tensor(b(), DType::fp64, {1}, {7});
    b().reduce().max_abs(stream(), x, result);
    EXPECT_EQ(values_of(b(), result)[0], largest) << n;
    b().reduce().count_zeros(stream(), x, zeros);
    EXPECT_EQ(values_of(b(), zeros)[0], 7 + (n + 2) / 3) << n;
  }
}

TEST_P(Reduce, ReportsNonFiniteValues) {
  for (const double bad : {infinity, -infinity, std::nan("")}) {
    std::vector<double> values(50'000, 1.0);
    values[40'001] = bad;
    const Tensor squares = make_tensor(b(), DType::fp64, {1}, {0}), sum = make_tensor(b(), DType::fp64, {1}, {0});
    const Tensor x = make_tensor(b(), dtype(), {50'000}, values);
    b().reduce().sum_squares(stream(), x, squares);
    b().reduce().sum(stream(), x, sum);
    const Tensor powers = make_tensor(b(), DType::fp64, {1}, {0}), largest = make_tensor(b(), DType::fp64, {1}, {0});
    b().reduce().sum_powers(stream(), x, 3, powers);
    b().reduce().max_abs(stream(), x, largest);
    for (const Tensor* result : {&squares, &sum, &powers}) EXPECT_FALSE(std::isfinite(values_of(b(), *result)[0]));
    EXPECT_EQ(values_of(b(), largest)[0], infinity);
  }
}

TEST(SumSquares, DoesNotOverflowInFp32) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const Tensor squares = make_tensor(b, DType::fp64, {1}, {0});
  b.reduce().sum_squares(b.compute_stream(), make_tensor(b, DType::fp32, {2}, {std::ldexp(1.0, 120), 1}), squares);
  EXPECT_EQ(values_of(b, squares)[0], std::ldexp(1.0, 240));
}

TEST_P(Reduce, BitsDoNotDependOnThreads) {
  std::vector<double> first;
  for (const int threads : {1, 2, 3}) {
    const auto backend = test::make_backend(threads);
    Backend& b = *backend;
    const Tensor x = random_tensor(b, dtype(), {200'001}, 1), result = make_tensor(b, DType::fp64, {1}, {0});
    b.reduce().sum(b.compute_stream(), x, result);
    b.reduce().sum_squares(b.compute_stream(), x, result);
    b.reduce().sum_powers(b.compute_stream(), x, 3, result);
    const std::vector<double> value = values_of(b, result);
    if (first.empty()) first = value;
    EXPECT_EQ(value, first) << threads << " threads";
  }
}

}  // namespace
}  // namespace trireme
