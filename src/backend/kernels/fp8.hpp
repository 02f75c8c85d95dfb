#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "src/backend/kernels/activation.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Formats of 8 bits (Micikevicius et al. 2022, arXiv:2209.05433). e4m3: 3 bits of mantissa, up to 448 = 1.75 x 2^8,
/// normal from 2^-6. e5m2: 2 bits of mantissa, up to 57344 = 1.75 x 2^15, normal from 2^-14. Backends use these
/// functions on the host and in kernels, so that they round alike.
enum class Fp8Format : std::uint8_t { e4m3, e5m2 };

constexpr int fp8_mantissa_bits(Fp8Format format) { return format == Fp8Format::e4m3 ? 3 : 2; }
constexpr int fp8_least_exponent(Fp8Format format) { return format == Fp8Format::e4m3 ? -6 : -14; }
/// Exponent of the largest number, whose mantissa is 1.75.
constexpr int fp8_largest_exponent(Fp8Format format) { return format == Fp8Format::e4m3 ? 8 : 15; }

/// 2^exponent, of a normal fp32.
constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// Returns `value` rounded to the format: to nearest, ties to even, and larger ones to the largest number. A NaN stays
/// one.
constexpr float round_to_fp8(float value, Fp8Format format) {
  const float largest = 1.75f * power_of_two(fp8_largest_exponent(format));
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value), sign = word & 0x80000000u;
  float size = std::bit_cast<float>(word ^ sign);
  size = size > largest ? largest : size;
  const std::uint32_t least = static_cast<std::uint32_t>(fp8_least_exponent(format) + 127) << 23;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(size) & 0x7f800000u;
  // The sum with a number of so much larger an exponent has no more bits of `size` than the format keeps.
  const std::uint32_t shift = static_cast<std::uint32_t>(23 - fp8_mantissa_bits(format)) << 23;
  const float large = std::bit_cast<float>((exponent > least ? exponent : least) + shift);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>((size + large) - large) | sign);
}

/// Returns the byte of a number of the format, of a NaN 0x7f.
constexpr std::uint8_t fp8_code(float number, Fp8Format format) {
  if (number != number) return 0x7f;
  const int mantissa = fp8_mantissa_bits(format), least = fp8_least_exponent(format);
  const std::uint32_t word = std::bit_cast<std::uint32_t>(number), sign = word >> 24 & 0x80u, size = word & 0x7fffffffu;
  const int exponent = static_cast<int>(size >> 23) - 127;
  const std::uint32_t code =
      exponent < least
          ? static_cast<std::uint32_t>(std::bit_cast<float>(size) * power_of_two(mantissa - least))
          : (static_cast<std::uint32_t>(exponent - least + 1) << mantissa) | ((size & 0x7fffffu) >> (23 - mantissa));
  return static_cast<std::uint8_t>(sign | code);
}

/// Returns the number of a byte that fp8_code returns.
constexpr float fp8_number(std::uint8_t code, Fp8Format format) {
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const int mantissa = fp8_mantissa_bits(format), least = fp8_least_exponent(format);
  const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
  const float size = static_cast<float>(exponent == 0 ? fraction : fraction + (1 << mantissa)) *
                     power_of_two((exponent == 0 ? least : exponent - 1 + least) - mantissa);
  return (code & 0x80) != 0 ? -size : size;
}

/// Returns the least k, from -100 to 100, for which 1.75 x 2^k is at least `size`; 0 for 0 and numbers that are not
/// finite.
constexpr int fp8_exponent_of(float size) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(size) & 0x7fffffffu;
  if (word == 0 || word >= 0x7f800000u) return 0;
  const int k = static_cast<int>(word >> 23) - 127 + ((word & 0x7fffffu) > 0x600000u ? 1 : 0);
  return k < -100 ? -100 : k > 100 ? 100 : k;
}

/// Returns the exponent of the power of two by which numbers up to `size` are multiplied before they are rounded: the
/// largest for which they stay below 2^-margin of the format's largest number.
constexpr int fp8_scale_exponent(float size, Fp8Format format, int margin) {
  return fp8_largest_exponent(format) - margin - fp8_exponent_of(size);
}

/// Elements along a side of a block with a scale of its own.
constexpr std::int64_t fp8_block = 128;

/// An operand [rows, columns] in FP8, as it lies in memory and transposed, with the scales of both: several products
/// round it once. For backends with Capability::fp8_copies.
struct Fp8Copy {
  /// uint8 [fp8_copy_bytes], and of sums fp8_sums_bytes more, aligned to 64 bytes; empty: every product rounds the
  /// operand.
  TensorView memory = {};
  bool made = false;      ///< set by the first product that has it
  bool has_sums = false;  ///< keeps partial sums of the columns, for the gradient of a bias
};

/// Bytes of the parts of an operand in FP8, each of whole lines: numbers, and scales along the columns.
constexpr std::int64_t fp8_codes_bytes(std::int64_t rows, std::int64_t columns) {
  return (rows * columns + 63) / 64 * 64;
}
constexpr std::int64_t fp8_scales_bytes(std::int64_t rows, std::int64_t columns, bool by_blocks) {
  const std::int64_t along = (columns + fp8_block - 1) / fp8_block;
  // cuBLASLt pads the rows of squares to four.
  const std::int64_t squares = (rows + fp8_block - 1) / fp8_block * ((along + 3) / 4 * 4);
  const std::int64_t count = !by_blocks ? 1 : along * rows > squares ? along * rows : squares;
  return (count * 4 + 63) / 64 * 64;
}
constexpr std::int64_t fp8_form_bytes(std::int64_t rows, std::int64_t columns, bool by_blocks) {
  return fp8_codes_bytes(rows, columns) + fp8_scales_bytes(rows, columns, by_blocks);
}
constexpr std::int64_t fp8_copy_bytes(std::int64_t rows, std::int64_t columns, bool by_blocks) {
  return fp8_form_bytes(rows, columns, by_blocks) + fp8_form_bytes(columns, rows, by_blocks);
}
/// Bytes of the partial sums of an operand's columns, fp32 [rows / fp8_block, columns].
constexpr std::int64_t fp8_sums_bytes(std::int64_t rows, std::int64_t columns) {
  return ((rows + fp8_block - 1) / fp8_block * columns * 4 + 63) / 64 * 64;
}

/// An elementwise function that is computed where an operand x is rounded, and before that rounded to the type of x:
/// activation(x), or x activation'(pre_activation), the gradient before an activation whose result has the gradient x.
struct Fp8Source {
  Activation activation = Activation::none;  ///< none: x itself
  ConstTensorView pre_activation = {};       ///< like x; empty: the first function
};

/// Rounding of an operand of a product to FP8: q(x 2^e) / 2^e, where q is round_to_fp8. Multiplying by a power of two
/// is exact, so that e matters only for numbers that are too large, or below the format's normal ones.
struct Fp8Operand {
  Fp8Format format = Fp8Format::e4m3;
  /// [1] fp64: the largest magnitude that must be represented, for e = fp8_scale_exponent. Empty: each block has an e
  /// for its own largest magnitude. Blocks of weights are fp8_block x fp8_block, those of other operands 1 x fp8_block
  /// along the sum of the product. The last ones may be smaller.
  ConstTensorView amax = {};
  TensorView seen =
      {};  ///< [1] fp64: becomes max(seen, magnitudes of the operand, NaN = infinity); empty: not measured
  Fp8Copy* copy = nullptr;  ///< read if it is made, else made; null: not kept
  Fp8Source source = {};    ///< function of x; `amax` and `seen` are those of its result

  /// Returns whether the kernel that rounds also sums the columns, for a gradient's bias.
  bool makes_sums() const { return copy == nullptr || copy->has_sums; }
};

/// Rounding of both operands of a product, in the order of its arguments. The product of the rounded operands is summed
/// like any other.
struct Fp8Product {
  Fp8Operand first, second;
  int margin = 0;
};

}  // namespace trireme
