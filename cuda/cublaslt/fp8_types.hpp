#pragma once

#include <compare>

#include "src/backend/kernels/fp8.hpp"

namespace trireme::cuda {

/// Blocks of an operand with a scale each: one; fp8_block elements along the sum of the product; or squares.
enum class Fp8Blocks { whole, vectors, squares };

/// The operands of a product in FP8.
struct Fp8Types {
  Fp8Format a = Fp8Format::e4m3, b = Fp8Format::e4m3;
  Fp8Blocks a_blocks = Fp8Blocks::whole, b_blocks = Fp8Blocks::whole;
  bool over_rows = false;  ///< the sum runs over rows, as of a weight's gradient
  bool fast_sums = false;  ///< stay in the tensor cores' short accumulators (FAST_ACCUM)
  auto operator<=>(const Fp8Types&) const = default;
};

}  // namespace trireme::cuda
