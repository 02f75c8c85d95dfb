#include <algorithm>
#include <cmath>
#include <limits>

#include "src/tensor/dtype.hpp"
#include "tests/ptx/operations/operations.hpp"

namespace trireme::ptx {
namespace {

template <class To, class From>
void add_integers(OperationTable& table, const std::string& to, const std::string& from) {
  table["cvt." + to + "." + from] = mapped([](From a) { return static_cast<To>(a); });
}

/// Clamps to the range; 0 for NaN.
template <class To, class From>
To saturated(From a) {
  if (std::isnan(a)) return 0;
  if (a < static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  // The maximum is one less than a power of two, to which it is rounded if From has fewer bits.
  if (a >= std::ldexp(From{1}, std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
  return static_cast<To>(a);
}

template <class Float, class Integer>
void add_float_and_integer(OperationTable& table, const std::string& real, const std::string& integer) {
  table["cvt.rn." + real + "." + integer] = mapped([](Integer a) { return static_cast<Float>(a); });
  table["cvt.rni." + integer + "." + real] = mapped([](Float a) { return saturated<Integer>(std::nearbyint(a)); });
  table["cvt.rzi." + integer + "." + real] = mapped([](Float a) { return saturated<Integer>(std::trunc(a)); });
  table["cvt.rmi." + integer + "." + real] = mapped([](Float a) { return saturated<Integer>(std::floor(a)); });
  table["cvt.rpi." + integer + "." + real] = mapped([](Float a) { return saturated<Integer>(std::ceil(a)); });
}

template <class T>
void add_integer(OperationTable& table, const std::string& type) {
  add_integers<std::int8_t, T>(table, "s8", type);
  add_integers<std::uint8_t, T>(table, "u8", type);
  add_integers<std::int16_t, T>(table, "s16", type);
  add_integers<std::uint16_t, T>(table, "u16", type);
  add_integers<std::int32_t, T>(table, "s32", type);
  add_integers<std::uint32_t, T>(table, "u32", type);
  add_integers<std::int64_t, T>(table, "s64", type);
  add_integers<std::uint64_t, T>(table, "u64", type);
  add_float_and_integer<float, T>(table, "f32", type);
  add_float_and_integer<double, T>(table, "f64", type);
}

template <class T>
void add_float(OperationTable& table, const std::string& type) {
  const std::string both = type + "." + type;
  table["cvt.rni." + both] = mapped([](T a) { return std::nearbyint(a); });
  table["cvt.rzi." + both] = mapped([](T a) { return std::trunc(a); });
  table["cvt.rmi." + both] = mapped([](T a) { return std::floor(a); });
  table["cvt.rpi." + both] = mapped([](T a) { return std::ceil(a); });
  table["cvt.sat." + both] = mapped([](T a) { return a >= 1 ? T{1} : a > 0 ? a : T{0}; });
}

/// T is a type of 16 bits.
template <class T>
std::uint16_t narrowed(float a) {
  return std::bit_cast<std::uint16_t>(T(a));
}
template <class T>
void add_half(OperationTable& table, const std::string& type) {
  table["cvt.f32." + type] = mapped([](std::uint16_t a) { return static_cast<float>(std::bit_cast<T>(a)); });
  table["cvt.rn." + type + ".f32"] = mapped([](float a) { return narrowed<T>(a); });
  table["cvt.rn." + type + "x2.f32"] =
      mapped([](float high, float low) { return std::uint32_t{narrowed<T>(high)} << 16 | narrowed<T>(low); });
}

/// The byte of `a` in a format of 8 bits, by fp64, not by the program's own rounding. The format has `mantissa` bits
/// and exponents from `least` on.
template <int mantissa, int least, int largest>
std::uint32_t nearest_code(float a) {
  if (std::isnan(a)) return 0x7f;
  const double size = std::min<double>(std::abs(a), largest);
  const int exponent = size == 0 ? least : std::max(std::ilogb(size), least);
  const double units = std::nearbyint(std::ldexp(size, mantissa - exponent));  // ties to even
  return (std::signbit(a) ? 0x80u : 0u) +
         ((static_cast<std::uint32_t>(exponent - least) << mantissa) + static_cast<std::uint32_t>(units));
}
template <int mantissa, int least, int largest>
void add_eight_bits(OperationTable& table, const std::string& type) {
  table["cvt.rn.satfinite." + type + "x2.f32"] = mapped([](float high, float low) {
    return static_cast<std::uint16_t>(nearest_code<mantissa, least, largest>(high) << 8 |
                                      nearest_code<mantissa, least, largest>(low));
  });
}

}  // namespace

void add_conversions(OperationTable& table) {
  add_integer<std::int8_t>(table, "s8");
  add_integer<std::uint8_t>(table, "u8");
  add_integer<std::int16_t>(table, "s16");
  add_integer<std::uint16_t>(table, "u16");
  add_integer<std::int32_t>(table, "s32");
  add_integer<std::uint32_t>(table, "u32");
  add_integer<std::int64_t>(table, "s64");
  add_integer<std::uint64_t>(table, "u64");
  add_float<float>(table, "f32");
  add_float<double>(table, "f64");
  add_half<bf16>(table, "bf16");
  add_half<fp16>(table, "f16");
  add_eight_bits<3, -6, 448>(table, "e4m3");
  add_eight_bits<2, -14, 57344>(table, "e5m2");
  table["cvt.f64.f32"] = mapped([](float a) { return static_cast<double>(a); });
  table["cvt.rn.f32.f64"] = mapped([](double a) { return static_cast<float>(a); });
}

}  // namespace trireme::ptx
