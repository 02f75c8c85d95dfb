#include <cmath>
#include <limits>

#include "tests/ptx/operations/operations.hpp"

// Results are rounded to nearest, ties to even, and nothing is fused (the project compiles with -ffp-contract=off).

namespace trireme::ptx {
namespace {

template <class T>
bool unordered(T a, T b) {
  return std::isnan(a) || std::isnan(b);
}

template <class T>
void add_unordered_comparisons(OperationTable& table, const std::string& type) {
  table["setp.equ." + type] = mapped([](T a, T b) { return a == b || unordered(a, b); });
  table["setp.neu." + type] = mapped([](T a, T b) { return a != b; });
  table["setp.ltu." + type] = mapped([](T a, T b) { return !(a >= b); });
  table["setp.leu." + type] = mapped([](T a, T b) { return !(a > b); });
  table["setp.gtu." + type] = mapped([](T a, T b) { return !(a <= b); });
  table["setp.geu." + type] = mapped([](T a, T b) { return !(a < b); });
  table["setp.num." + type] = mapped([](T a, T b) { return !unordered(a, b); });
  table["setp.nan." + type] = mapped([](T a, T b) { return unordered(a, b); });
}

/// The greater of two; a number rather than NaN, and +0 rather than -0.
template <class T>
T greater(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
void add_arithmetic(OperationTable& table, const std::string& type) {
  add_comparisons<T>(table, type);
  add_unordered_comparisons<T>(table, type);
  for (const std::string rounding : {"", "rn."}) {
    table["add." + rounding + type] = mapped([](T a, T b) { return a + b; });
    table["sub." + rounding + type] = mapped([](T a, T b) { return a - b; });
    table["mul." + rounding + type] = mapped([](T a, T b) { return a * b; });
  }
  table["fma.rn." + type] = mapped([](T a, T b, T c) { return std::fma(a, b, c); });
  table["div.rn." + type] = mapped([](T a, T b) { return a / b; });
  table["rcp.rn." + type] = mapped([](T a) { return 1 / a; });
  table["sqrt.rn." + type] = mapped([](T a) { return std::sqrt(a); });
  table["abs." + type] = mapped([](T a) { return std::fabs(a); });
  table["neg." + type] = mapped([](T a) { return -a; });
  table["max." + type] = mapped([](T a, T b) { return greater(a, b); });
  table["min." + type] = mapped([](T a, T b) { return -greater(-a, -b); });
  table["copysign." + type] = mapped([](T sign, T a) { return std::copysign(a, sign); });
}

float flushed(float a) { return std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0F, a) : a; }

/// a b + c rounded towards minus infinity. The product is exact in fp64, and low holds what the sum loses there.
float fma_down(float a, float b, float c) {
  const double product = double{a} * double{b}, sum = product + double{c};
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double other = sum - product, low = (product - (sum - other)) + (double{c} - other);
  const auto rounded = static_cast<float>(sum);
  const bool is_above = double{rounded} > sum || (double{rounded} == sum && low < 0);
  return is_above ? std::nextafter(rounded, -std::numeric_limits<float>::infinity()) : rounded;
}

/// The hardware's first step of a division: it reads and writes only the upper halves.
double coarse_reciprocal(double a) {
  constexpr std::uint64_t upper = 0xffffffff00000000;
  const auto bits = std::bit_cast<std::uint64_t>(a) & upper;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(1 / std::bit_cast<double>(bits)) & upper);
}

}  // namespace

void add_float_operations(OperationTable& table) {
  add_arithmetic<float>(table, "f32");
  add_arithmetic<double>(table, "f64");
  table["fma.rm.f32"] = mapped([](float a, float b, float c) { return fma_down(a, b, c); });
  // Approximations, computed in fp64 and rounded: within the documented errors, without the hardware's own bits.
  table["ex2.approx.f32"] = mapped([](float a) { return static_cast<float>(std::exp2(double{a})); });
  table["ex2.approx.ftz.f32"] =
      mapped([](float a) { return flushed(static_cast<float>(std::exp2(double{flushed(a)}))); });
  table["rcp.approx.ftz.f32"] = mapped([](float a) { return flushed(static_cast<float>(1 / double{flushed(a)})); });
  table["rcp.approx.ftz.f64"] = mapped([](double a) { return coarse_reciprocal(a); });
}

}  // namespace trireme::ptx
