#include "src/base/vector_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "src/backend/cpu/activation.hpp"

namespace trireme::cpu {
namespace {

/// Largest error of `approximate` over [low, high] in units of the last place of the exact result.
template <class A, class Approximate, class Exact>
double worst_ulps(A low, A high, Approximate&& approximate, Exact&& exact) {
  constexpr int points = 200'000;
  double worst = 0;
  for (int i = 0; i <= points; ++i) {
    const A x = low + (high - low) * (static_cast<A>(i) / points);
    const long double expected = exact(static_cast<long double>(x));
    const double ulp = std::max(static_cast<double>(std::abs(expected)) * std::numeric_limits<A>::epsilon(),
                                static_cast<double>(std::numeric_limits<A>::min()));
    worst = std::max(worst, static_cast<double>(std::abs(approximate(x) - expected)) / ulp);
  }
  return worst;
}

const auto exact_exp = [](long double x) { return std::exp(x); };
const auto exact_probability = [](long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; };
const auto exact_density = [](long double x) { return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846L); };

TEST(VectorExp, IsExactToTwoUlp) {
  const auto exponential = [](auto x) { return vector_exp(x); };
  EXPECT_LT(worst_ulps(-87.0f, 88.7f, exponential, exact_exp), 2);
  EXPECT_LT(worst_ulps(-1.0f, 1.0f, exponential, exact_exp), 2);
  EXPECT_LT(worst_ulps(-708.0, 709.7, exponential, exact_exp), 2);
  EXPECT_LT(worst_ulps(-1.0, 1.0, exponential, exact_exp), 2);
}

TEST(VectorExp, HandlesTheEndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(vector_exp(0.0f), 1);
  EXPECT_EQ(vector_exp(-infinity), 0);
  EXPECT_EQ(vector_exp(-1e30f), 0);
  EXPECT_EQ(vector_exp(89.0f), infinity);
  EXPECT_EQ(vector_exp(1e30f), infinity);
  EXPECT_EQ(vector_exp(infinity), infinity);
  EXPECT_TRUE(std::isnan(vector_exp(std::nanf(""))));
  EXPECT_EQ(vector_exp(0.0), 1);
  EXPECT_EQ(vector_exp(-1e300), 0);
  EXPECT_EQ(vector_exp(1e300), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(vector_exp(std::nan(""))));
}

TEST(VectorTanh, KeepsItsDigitsAndIsBounded) {
  const auto tangent = [](auto x) { return vector_tanh(x); };
  const auto exact_tanh = [](long double x) { return std::tanh(x); };
  for (const float bound : {1e-3f, 1.0f, 20.0f}) {
    EXPECT_LT(worst_ulps(-bound, bound, tangent, exact_tanh), 4);
    EXPECT_LT(worst_ulps<double>(-bound, bound, tangent, exact_tanh), 4);
  }
  EXPECT_EQ(vector_tanh(-1e30f), -1);
  EXPECT_EQ(vector_tanh(std::numeric_limits<double>::infinity()), 1);
  EXPECT_TRUE(std::isnan(vector_tanh(std::nanf(""))));
}

TEST(VectorNormal, KeepsItsDigitsOnBothTails) {
  const auto probability = [](auto x) { return vector_normal(x).probability; };
  const auto density = [](auto x) { return vector_normal(x).density; };
  EXPECT_LT(worst_ulps(-12.9f, 6.0f, probability, exact_probability), 8);
  EXPECT_LT(worst_ulps(-12.9f, 12.9f, density, exact_density), 8);
  EXPECT_LT(worst_ulps(-20.0, 6.0, probability, exact_probability), 400);
  EXPECT_LT(worst_ulps(-20.0, 20.0, density, exact_density), 400);
  EXPECT_EQ(vector_normal(-100.0f).probability, 0);
  EXPECT_EQ(vector_normal(100.0f).probability, 1);
}

TEST(Gelu, MatchesItsDefinition) {
  const auto exact_tanh_form = [](long double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846L) * (x + 0.044715L * x * x * x)));
  };
  const auto exact_erf_form = [](long double x) { return x * exact_probability(x); };
  const auto tanh_form = [](auto x) { return activate<Activation::gelu_tanh>(x); };
  const auto erf_form = [](auto x) { return activate<Activation::gelu_erf>(x); };
  EXPECT_LT(worst_ulps(-2.0f, 20.0f, tanh_form, exact_tanh_form), 10);
  EXPECT_LT(worst_ulps(-2.0, 20.0, tanh_form, exact_tanh_form), 10);
  EXPECT_LT(worst_ulps(-2.0f, 20.0f, erf_form, exact_erf_form), 10);
  EXPECT_LT(worst_ulps(-2.0, 20.0, erf_form, exact_erf_form), 10);
}

TEST(Gelu, DerivativeMatchesFiniteDifferenceAndIsFlatFarOut) {
  const auto check = []<Activation activation>() {
    for (double x = -8; x <= 8; x += 0.01) {
      const double step = 1e-6;
      const double difference = (activate<activation>(x + step) - activate<activation>(x - step)) / (2 * step);
      EXPECT_NEAR(activation_derivative<activation>(x), difference, 3e-9) << x;
      const float single = activation_derivative<activation>(static_cast<float>(x));
      EXPECT_NEAR(single, activation_derivative<activation>(static_cast<double>(static_cast<float>(x))), 2e-6) << x;
    }
    for (const float far : {30.0f, 1e4f, 1e12f}) {
      EXPECT_EQ(activation_derivative<activation>(far), 1);
      EXPECT_NEAR(activation_derivative<activation>(-far), 0, 1e-30);
    }
  };
  check.operator()<Activation::gelu_tanh>();
  check.operator()<Activation::gelu_erf>();
}

}  // namespace
}  // namespace trireme::cpu
