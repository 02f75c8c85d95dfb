#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "src/base/check.hpp"

namespace trireme {

/// bfloat16: the upper half of an fp32. Storage only; arithmetic is done in fp32. Conversion rounds to nearest even and
/// keeps NaN a NaN.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    bits = value != value ? static_cast<std::uint16_t>(word >> 16 | 0x40u)
                          : static_cast<std::uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// IEEE 754 binary16. Storage only; arithmetic is done in fp32.
struct fp16 {
  std::uint16_t bits = 0;
  fp16() = default;
  explicit fp16(float value) : bits(std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, int64, int32, uint32, uint16, uint8 };

constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t sizes[] = {8, 4, 2, 2, 8, 4, 4, 2, 1};
  return sizes[static_cast<int>(dtype)];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"fp64", "fp32", "bf16", "fp16", "int64", "int32", "uint32", "uint16", "uint8"};
  return names[static_cast<int>(dtype)];
}

/// Returns the type called `name`; ConfigError if none.
inline DType dtype_from_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::uint8); ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  throw ConfigError("there is no data type '{}'; training types are fp64, fp32, bf16 and fp16", name);
}

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, double>)
    return DType::fp64;
  else if constexpr (std::is_same_v<U, float>)
    return DType::fp32;
  else if constexpr (std::is_same_v<U, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<U, fp16>)
    return DType::fp16;
  else if constexpr (std::is_same_v<U, std::int64_t>)
    return DType::int64;
  else if constexpr (std::is_same_v<U, std::int32_t>)
    return DType::int32;
  else if constexpr (std::is_same_v<U, std::uint32_t>)
    return DType::uint32;
  else if constexpr (std::is_same_v<U, std::uint16_t>)
    return DType::uint16;
  else {
    static_assert(std::is_same_v<U, std::uint8_t>, "no DType for this type");
    return DType::uint8;
  }
}

/// fp64 for fp64, fp32 for every other training type: the type of master weights, gradients, moments, statistics and
/// arithmetic.
constexpr DType accumulation_type(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }
template <class T>
using Accumulation = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Unit roundoff of a floating-point type: half the distance from 1 to the next number. A rounding to nearest changes a
/// number by at most this times its magnitude.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 0x1p-53;
    case DType::fp32:
      return 0x1p-24;
    case DType::fp16:
      return 0x1p-11;
    default:
      return 0x1p-8;  // bf16
  }
}

/// Calls `function.template operator()<T>()`, or `<T, Accumulation<T>>` if it takes both types.
template <class T, class Function>
decltype(auto) call_with(Function&& function) {
  if constexpr (requires { function.template operator()<T, Accumulation<T>>(); }) {
    return function.template operator()<T, Accumulation<T>>();
  } else {
    return function.template operator()<T>();
  }
}

/// Calls `function` by `call_with` with the C++ type of a floating-point `dtype`; ShapeError for others.
template <class Function>
decltype(auto) dispatch_float(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::fp64:
      return call_with<double>(function);
    case DType::fp32:
      return call_with<float>(function);
    case DType::bf16:
      return call_with<bf16>(function);
    case DType::fp16:
      return call_with<fp16>(function);
    default:
      throw ShapeError("a floating-point tensor is needed here, not {}", name_of(dtype));
  }
}

}  // namespace trireme
