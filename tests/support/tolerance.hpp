#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/dtype.hpp"

namespace trireme::test {

/// Kind of a kernel's operation, by its rounding errors.
enum class Operation {
  rounding,          ///< exact but for one rounding to the training type: conversion, copy, masks
  elementwise,       ///< some operations and elementary functions in the accumulation type, then one rounding
  sum,               ///< sums of up to some thousand terms in the accumulation type, then one rounding
  rounded_sum,       ///< the same of products whose one factor is a result rounded to the training type, `dtype`
  finite_difference  ///< a central difference in fp64 with step 1e-5 against an analytic derivative
};

/// |actual - expected| <= relative |expected| + absolute max |expected|. The second term is there because sums cancel:
/// their error goes with the terms, not with the result.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

/// The one table of tolerances. `dtype` is the type a result is stored in, `accumulation` the one it was computed in.
/// u is the unit roundoff of the stored type (half the distance from 1 to the next number), U that of the accumulation
/// type. Storing costs u relative (and in fp16 the spacing of subnormals, far below the absolute term). Elementwise
/// kernels make up to about ten roundings of intermediate results, each U of the largest of them. In a sum of n terms
/// the errors grow at worst with n, in fact with about its root: 300 U of the largest result covers n = 50,000 with
/// inputs of order one. Where factors were rounded before, each term is wrong by up to u of itself; of a sum of n terms
/// that is u of about root n times a term, and the largest results are as large as that. A central difference with step
/// d has an error of d^2 of the third derivative and U / d of the value.
inline Tolerance tolerance(DType dtype, Operation operation, DType accumulation) {
  const auto unit_roundoff = [](DType type) {
    switch (type) {
      case DType::fp64:
        return std::ldexp(1.0, -53);
      case DType::fp32:
        return std::ldexp(1.0, -24);
      case DType::fp16:
        return std::ldexp(1.0, -11);
      default:
        return std::ldexp(1.0, -8);  // bf16
    }
  };
  const double u = unit_roundoff(dtype), wide = unit_roundoff(accumulation);
  switch (operation) {
    case Operation::rounding:
      return {1.01 * u, 0.001 * u};
    case Operation::elementwise:
      return {1.01 * u + 4 * wide, 20 * wide + 0.001 * u};
    case Operation::sum:
      return {1.01 * u, 300 * wide + 0.001 * u};
    case Operation::rounded_sum:
      return {1.01 * u, 2 * u};
    case Operation::finite_difference:
      return {1e-7, 1e-7};
  }
  return {};
}
inline Tolerance tolerance(DType dtype, Operation operation) {
  return tolerance(dtype, operation, accumulation_type(dtype));
}

/// Expects equal sizes and every element within the tolerance, NaN nowhere; reports the worst element.
inline void expect_close(std::span<const double> actual, std::span<const double> expected, Tolerance tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = 0;
  for (const double e : expected) scale = std::max(scale, std::abs(e));
  std::size_t worst = 0;
  double worst_ratio = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities too
    const double allowed = tolerance.relative * std::abs(expected[i]) + tolerance.absolute * scale;
    const double ratio = std::abs(actual[i] - expected[i]) / allowed;
    if (!(ratio <= worst_ratio)) {
      worst = i;
      worst_ratio = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    }
  }
  EXPECT_LE(worst_ratio, 1) << what << ": element " << worst << " of " << actual.size() << " is " << actual[worst]
                            << " instead of " << expected[worst] << ", " << worst_ratio << " times the tolerance";
}

}  // namespace trireme::test
