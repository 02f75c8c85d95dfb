#pragma once

#include <concepts>

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// Statistics kept for the backward pass, one number per row, both [n] A.
struct NormStatistics {
  TensorView mean;  ///< empty for RMSNorm, which subtracts nothing
  TensorView reciprocal_deviation;
};

/// Factors of a normalisation, weight + offset: the weight is stored as the difference from `offset`, which 16-bit
/// types round more finely.
struct NormWeight {
  template <std::convertible_to<ConstTensorView> View>
  NormWeight(const View& tensor, double stored_from = 0) : values(tensor), offset(stored_from) {}

  ConstTensorView values;
  double offset = 0;
};

/// Normalisation over the last dimension. n = s b rows of h; T the training type, A its accumulation type, in which
/// rows are computed. Two kinds:
///   layer normalisation (Ba et al. 2016, arXiv:1607.06450): rstd = 1 / sqrt(variance + epsilon), with the biased
///   variance;
///   RMSNorm (Zhang, Sennrich 2019, arXiv:1910.07467), where `statistics.mean` is empty: mean = 0, rstd = 1 / sqrt(mean
///   of squares + epsilon), and there is no bias: it and its gradient are empty too (ShapeError otherwise).
/// Stream-ordered, deterministic.
class NormKernels : public KernelFamily<NormKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// y = (x - mean) rstd (weight + offset) + bias. x, y [n, h] T; weight, bias [h] T. Overwrites y and statistics.
  virtual void normalise(Stream& stream, ConstTensorView x, const NormWeight& weight, ConstTensorView bias,
                         double epsilon, TensorView y, NormStatistics statistics) {
    pass_on(&NormKernels::normalise, stream, {KernelKind::norm, bytes_of({x, y})}, x, weight, bias, epsilon, y,
            statistics);
  }

  /// dx = residual_gradient + d normalise / dx applied to dy (the second branch of a pre-norm residual block arrives in
  /// residual_gradient, [n, h] T or empty); dweight, dbias [h] A accumulate. dx [n, h] T is overwritten and may be the
  /// same memory as residual_gradient or dy.
  virtual void normalise_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, const NormWeight& weight,
                                  NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                                  TensorView dweight, TensorView dbias) {
    // Longer rows do not fit the registers of cuda/kernels/norm_backward.cu: they are read twice.
    constexpr std::int64_t max_held_width = 6144;
    const bool held = x.shape().back() <= max_held_width;
    const double again = held ? 0 : bytes_of({dy, x});
    pass_on(&NormKernels::normalise_backward, stream,
            {.kind = KernelKind::norm_backward,
             .bytes = bytes_of({dy, x, residual_gradient, dx}) + again,
             .launches = held ? 2 : 3,
             .extents = sums_of(dy, {dweight, dbias})},
            dy, x, weight, statistics, residual_gradient, dx, dweight, dbias);
  }

  /// sum = residual + dropout(x + bias);  y = normalise(sum). The normalisation reads `sum` as rounded to T.
  /// x, residual, sum, y [s, b, h] T; weight, norm_bias [h] T; bias [h] T or empty. Overwrites sum, y, statistics.
  /// `sum` may be the same memory as x or residual.
  virtual void bias_dropout_add_norm(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                     const Dropout& dropout, const NormWeight& weight, ConstTensorView norm_bias,
                                     double epsilon, TensorView sum, TensorView y, NormStatistics statistics) {
    pass_on(&NormKernels::bias_dropout_add_norm, stream, {KernelKind::norm, bytes_of({x, residual, sum, y})}, x, bias,
            residual, dropout, weight, norm_bias, epsilon, sum, y, statistics);
  }
};

}  // namespace trireme
