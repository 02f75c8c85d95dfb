#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "src/tensor/dtype.hpp"

namespace trireme::test {

/// Kind of a kernel's operation, by its rounding errors.
enum class Operation {
  rounding,           ///< exact except for one rounding to the training type: conversion, copy, masks
  elementwise,        ///< some operations and elementary functions in the accumulation type, then one rounding
  sum,                ///< sums of up to some thousand terms in the accumulation type, then one rounding
  rounded_sum,        ///< the same of products whose one factor is a result rounded to the training type, `dtype`
  finite_difference,  ///< a central difference in fp64 with step 1e-5 against an analytic derivative
  model_difference    ///< the same for the loss of an entire model
};

/// |actual - expected| <= relative |expected| + absolute max |expected|. The second term accounts for cancellation: the
/// error of a sum is proportional to its terms, not to the result.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

/// The one table of tolerances. `dtype` is the type a result is stored in, `accumulation` the one it was computed in. u
/// is the unit roundoff of the stored type (half the distance from 1 to the next number), U that of the accumulation
/// type. Storing costs u relative (and in fp16 the spacing of subnormals, far below the absolute term). Elementwise
/// kernels make up to about ten roundings of intermediate results, each U of the largest of them. In a sum of n terms
/// the errors grow at worst with n, in practice with about its root: 300 U of the largest result covers n = 50,000 with
/// inputs of order one. If factors were rounded before, the error of each term is up to u of the term. In a sum of n
/// terms that makes u of about root n times a term, which is the size of the largest results. A central difference with
/// step d has an error of d^2 of the third derivative and U / d of the value. The loss of a model is a sum of larger
/// values, through more layers.
inline Tolerance tolerance(DType dtype, Operation operation, DType accumulation) {
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
    case Operation::model_difference:
      return {2e-6, 1e-6};
  }
  return {};
}
inline Tolerance tolerance(DType dtype, Operation operation) {
  return tolerance(dtype, operation, accumulation_type(dtype));
}

/// Two training runs that should have the same losses, by the cause of their difference.
enum class Comparison {
  other_average,            ///< the losses of given weights, averaged in another order
  other_order,              ///< the same run on another grid, or with activations that are computed again
  low_precision_gradients,  ///< gradients summed in 16 bits against gradients summed in fp32
  other_backend,            ///< the GPU's kernels against the CPU's
  pytorch,                  ///< a run that PyTorch made in fp64
  pytorch_hot,              ///< the same from initial matrices 16 times as large
  pytorch_hot_bert          ///< the same of a BERT, whose attention to the entire sequence enlarges differences more
};

/// Relative errors of the losses and gradient norms of a run.
struct RunTolerance {
  double loss = 0;
  double grad_norm = 0;
};

/// The table of tolerances of runs of up to 20 steps. In fp64 a rounding is 1e-16. Sums of some thousand terms enlarge
/// it a thousandfold, and each step enlarges the difference before it; a wrong element stays far above. In narrower
/// types single activations differ by a few units in the last place. Losses are means over many of them, and so differ
/// less than gradient norms. A hot run enlarges every difference: in bf16 its gradient norms differ by up to 0.11 on
/// the CPU.
inline RunTolerance tolerance(DType dtype, Comparison comparison) {
  const bool is_fp64 = dtype == DType::fp64, is_fp32 = dtype == DType::fp32;
  switch (comparison) {
    case Comparison::other_average:
      return {1e-12, 1e-12};
    case Comparison::other_order:
      return is_fp64 ? RunTolerance{1e-10, 1e-10} : is_fp32 ? RunTolerance{1e-6, 1e-5} : RunTolerance{1e-3, 1e-2};
    case Comparison::low_precision_gradients:
      return {1e-4, 1e-3};
    case Comparison::other_backend:
      return is_fp32 ? RunTolerance{2e-5, 2e-5} : RunTolerance{1e-3, 1e-2};
    case Comparison::pytorch:
      return is_fp64 ? RunTolerance{1e-9, 1e-9} : is_fp32 ? RunTolerance{1e-5, 1e-5} : RunTolerance{2e-3, 2e-2};
    case Comparison::pytorch_hot:
      return is_fp64 ? RunTolerance{1e-9, 1e-9} : is_fp32 ? RunTolerance{2e-5, 2e-4} : RunTolerance{1e-2, 3e-1};
    case Comparison::pytorch_hot_bert:
      return is_fp64 ? RunTolerance{1e-9, 1e-9} : is_fp32 ? RunTolerance{2e-4, 5e-3} : RunTolerance{1e-2, 3e-1};
  }
  return {};
}

/// Expects equal sizes and every element within the tolerance, NaN nowhere; reports the worst element. The absolute
/// tolerance is a part of the largest element expected, or of `least_scale`.
inline void expect_close(std::span<const double> actual, std::span<const double> expected, Tolerance tolerance,
                         const std::string& what, double least_scale = 0) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = least_scale;
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
