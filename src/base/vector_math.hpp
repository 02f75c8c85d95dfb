#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace trireme {

// Elementary functions without branches or calls, which compilers vectorise in loops. Polynomials are minimax, fitted
// for these intervals.

/// e^x to about 1 ulp. Results below the smallest normal number are 0, above the largest infinity; NaN stays NaN.
inline float vector_exp(float x) {
  // x = n ln 2 + r: adding 1.5 2^23 rounds to an integer, held in the low bits.
  constexpr float rounder = 12582912.0f;
  const float shifted = x * std::numbers::log2e_v<float> + rounder;
  const float n = shifted - rounder;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 0.00138144639f;
  p = p * r + 0.008368780382f;
  p = p * r + 0.04166839426f;
  p = p * r + 0.1666652011f;
  p = p * r + 0.4999999341f;
  p = p * (r * r) + r + 1.0f;
  const float y = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
  const float bounded = x < -87.33f ? 0.0f : y;
  return x > 88.7228f ? HUGE_VALF : bounded;
}

inline double vector_exp(double x) {
  constexpr double rounder = 6755399441055744.0;  // 1.5 2^52
  const double shifted = x * std::numbers::log2e + rounder;
  const double n = shifted - rounder;
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;  // the Taylor series: |r| < 0.35, the next term is below 5e-18
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r + 1.0;
  const double y =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(shifted) << 52));
  const double bounded = x < -708.39 ? 0.0 : y;
  return x > 709.78 ? HUGE_VAL : bounded;
}

/// 2^x to about 1 ulp, for x in [-126, 127] only.
inline float vector_exp2_in_range(float x) {
  constexpr float rounder = 12582912.0f;
  const float shifted = x + rounder;
  const float r = x - (shifted - rounder);
  float p = 1.559487377e-4f;
  p = p * r + 1.340672019e-3f;
  p = p * r + 9.617692075e-3f;
  p = p * r + 0.0555031034f;
  p = p * r + 0.2402265279f;
  p = p * r + 0.6931472151f;
  p = p * r + 1.0f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

inline double vector_exp2_in_range(double x) { return vector_exp(x * std::numbers::ln2); }

/// tanh(x) to a few ulp. Near 0 a polynomial or rational function (Cephes) keeps the digits of small results.
inline float vector_tanh(float x) {
  const float a = std::abs(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = x + x * z * p;
  const float large = 1.0f - 2.0f / (vector_exp(2.0f * a) + 1.0f);
  return a < 0.625f ? small : std::copysign(large, x);
}

inline double vector_tanh(double x) {
  const double a = std::abs(x), z = x * x;
  const double p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - 1.61468768441708447952e3;
  const double q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3;
  const double small = x + x * z * (p / q);
  const double large = 1.0 - 2.0 / (vector_exp(2.0 * a) + 1.0);
  return a < 0.625 ? small : std::copysign(large, x);
}

/// The standard normal distribution at x: its density and its integral from minus infinity, to a few ulp of each on
/// both tails.
template <class A>
struct Normal {
  A density;
  A probability;
};

inline Normal<float> vector_normal(float x) {
  const float a = std::abs(x);
  // exp(-a^2 / 2) = exp(-square / 2) (1 - rest / 2), where rest is the rounding error of the square, which would cost
  // a^2 / 2 ulp. The product of heads is exact.
  const float square = a * a;
  const float head = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0xfffff000u);
  const float tail = a - head;
  const float rest = (head * head - square) + (a + head) * tail;
  const float exponential = vector_exp(-0.5f * square);
  const float e = exponential - exponential * (0.5f * rest);
  // erfc(a / sqrt 2) = e P(q) / (1 + sqrt(2) a), q = (a - c) / (a + c), c = 2 sqrt 2, with one division for both.
  constexpr float sqrt2 = std::numbers::sqrt2_v<float>;
  constexpr float c = 2 * sqrt2;
  const float t = a < 13.0f ? a : 13.0f;
  const float q_denominator = t + c, denominator = 1.0f + sqrt2 * t;
  const float reciprocal = 1.0f / (q_denominator * denominator);
  const float q = (t - c) * denominator * reciprocal;
  float p = -0.0004087414836f;
  p = p * q - 0.001244047827f;
  p = p * q + 0.001314591043f;
  p = p * q + 0.008642866835f;
  p = p * q - 0.008057760287f;
  p = p * q - 0.05420712265f;
  p = p * q + 0.1640547703f;
  p = p * q - 0.1660311885f;
  p = p * q - 0.09276395154f;
  p = p * q + 1.27697839f;
  const float beyond = 0.5f * e * p * (q_denominator * reciprocal);
  return {e * 0.3989422804f, x < 0.0f ? beyond : 1.0f - beyond};
}

inline Normal<double> vector_normal(double x) {
  return {std::exp(-0.5 * x * x) * 0.39894228040143267794, 0.5 * std::erfc(-x / std::numbers::sqrt2)};
}

}  // namespace trireme
