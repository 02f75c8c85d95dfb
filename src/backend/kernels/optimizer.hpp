#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// Numbers of an update that differ between parameters.
struct UpdateRates {
  double learning_rate = 0;
  double weight_decay = 0;
};
/// Rates of one update. Each of its ranges has one of them.
using UpdateRateTable = std::array<UpdateRates, 4>;

/// Ranges of flat arrays that one call updates. By default they are the entire arrays, with the first rates.
struct UpdateRanges {
  /// Columns of a range, each a multiple of 8 except the rates.
  enum Column {
    first,   ///< elements of all ranges before
    begin,   ///< first element in gradient, weights and their rounded copy
    moment,  ///< first element in the moments
    rates,   ///< position in the UpdateRateTable
    columns
  };
  ConstTensorView table = {};  ///< [ranges, columns] int64 in the backend's memory; empty: the entire arrays
  std::int64_t elements = 0;   ///< sum of all ranges, a multiple of 8
};

/// One step of AdamW (Loshchilov, Hutter 2017, arXiv:1711.05101), bias-corrected, with decoupled weight decay.
struct AdamWStep {
  UpdateRateTable rates = {};
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::int64_t update = 1;    ///< number of this update, from 1: corrections are 1 - beta^update
  double gradient_scale = 1;  ///< the gradient is multiplied by this first (clipping, inverse loss scale)
  /// In the backend's memory, replaces gradient_scale: the result of `decide`. If it is NaN nothing is written.
  const double* factor = nullptr;
};

/// One step of SGD with momentum and L2 regularisation, as in PyTorch's torch.optim.SGD without dampening.
struct SgdStep {
  UpdateRateTable rates = {};
  double momentum = 0.9;
  double gradient_scale = 1;       ///< the gradient is multiplied by this first (clipping, inverse loss scale)
  const double* factor = nullptr;  ///< as that of AdamWStep
};

/// Rule by which the results of a step decide on its update.
struct UpdateRule {
  double loss_scale = 1;
  double norm_limit = 0;  ///< norm to which the gradients are scaled down; 0: no limit
  int norm_power = 2;     ///< p of the norm; 0: the largest element
};

/// Decision of OptimizerKernels::decide.
struct UpdateDecision {
  double norm;    ///< norm of the gradients, without the loss scale
  double factor;  ///< factor of the gradients in the update; NaN: no update
};

/// Factor of the gradients that limits their norm to `limit`: min(1, limit / (norm + 1e-6)); 1 if `limit` is 0.
constexpr double clip_coefficient(double norm, double limit) {
  return limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6));
}

/// The decision of OptimizerKernels::decide, in any backend. root(x, p) is x^(1/p).
template <class Root>
constexpr UpdateDecision decision_of(const UpdateRule& rule, std::int64_t losses, const double* loss,
                                     std::int64_t groups, const double* of_group, double before, const Root& root) {
  double total = of_group[0];
  for (std::int64_t i = 1; i < groups; ++i) {
    if (rule.norm_power != 0) {
      total += of_group[i];
    } else if (of_group[i] != of_group[i] || of_group[i] > total) {
      total = of_group[i];
    }
  }
  double loss_sum = 0;
  for (std::int64_t i = 0; i < losses; ++i) loss_sum += loss[i];
  const double norm = (rule.norm_power == 0 ? total : root(total, rule.norm_power)) / rule.loss_scale;
  // x - x is NaN unless x is finite.
  const bool updates = norm - norm == 0 && loss_sum - loss_sum == 0 && before == before;
  const double factor = clip_coefficient(norm, rule.norm_limit) / rule.loss_scale;
  return {norm, updates ? factor : std::numeric_limits<double>::quiet_NaN()};
}

/// Calls `function.template operator()<M>()` with the type of a moment of AdamW: A, or bf16 if A is fp32.
template <class A, class Function>
void dispatch_moment(DType dtype, Function&& function) {
  if constexpr (std::is_same_v<A, float>) {
    if (dtype == DType::bf16) return function.template operator()<bf16>();
  }
  function.template operator()<A>();
}

class OptimizerKernels : public KernelFamily<OptimizerKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// gradient = 0 in `ranges`; flat, any floating-point type. Stream-ordered.
  virtual void clear(Stream& stream, const UpdateRanges& ranges, TensorView gradient) {
    pass_on(&OptimizerKernels::clear, stream, {KernelKind::gradients, update_bytes(ranges, {gradient})}, ranges,
            gradient);
  }

  /// norm = total^(1/p) / loss_scale;  factor = min(1, norm_limit / (norm + 1e-6)) / loss_scale, where `total` is the
  /// sum of `of_groups` [groups] fp64, sums of |g|^p, or for p = 0 their maximum. The factor is NaN, for no update, if
  /// the norm or a sum of `losses` [n] fp64 is not finite, or if it was NaN before: no update is made until the host
  /// has read why. norm, factor: [1] fp64, overwritten. Stream-ordered.
  virtual void decide(Stream& stream, const UpdateRule& rule, ConstTensorView losses, ConstTensorView of_groups,
                      TensorView norm, TensorView factor) {
    pass_on(&OptimizerKernels::decide, stream, {KernelKind::gradients, bytes_of({losses, of_groups, norm, factor})},
            rule, losses, of_groups, norm, factor);
  }

  /// g = gradient_scale gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  /// w = w (1 - learning_rate weight_decay) - learning_rate (m / c1) / (sqrt(v / c2) + epsilon), c = 1 - beta^update.
  /// gradient, w (the master weights), m, v: flat, same size, type A, w, m and v updated in place; `rounded` receives w
  /// in the training type, or is empty if w is the model's own. m and v may each be bf16 if A is fp32: widened to fp32,
  /// and rounded to nearest even after w is updated. Updates `ranges` alone, whose moments may lie elsewhere in m and
  /// v. Stream-ordered, deterministic: the bits of a call for each range.
  virtual void adamw(Stream& stream, const AdamWStep& step, const UpdateRanges& ranges, ConstTensorView gradient,
                     TensorView w, TensorView m, TensorView v, TensorView rounded) {
    pass_on(&OptimizerKernels::adamw, stream,
            {KernelKind::optimizer, update_bytes(ranges, {gradient, w, w, m, m, v, v, rounded})}, step, ranges,
            gradient, w, m, v, rounded);
  }

  /// m = momentum m + gradient_scale gradient + weight_decay w;  w = w - learning_rate m.
  /// gradient, w (the master weights), m: flat, same size, type A, w and m updated in place; m is 0 before the first
  /// step. `rounded` receives w in the training type, or is empty if w is the model's own. Updates `ranges` alone, as
  /// adamw does. Stream-ordered, deterministic.
  virtual void sgd(Stream& stream, const SgdStep& step, const UpdateRanges& ranges, ConstTensorView gradient,
                   TensorView w, TensorView m, TensorView rounded) {
    pass_on(&OptimizerKernels::sgd, stream,
            {KernelKind::optimizer, update_bytes(ranges, {gradient, w, w, m, m, rounded})}, step, ranges, gradient, w,
            m, rounded);
  }

  /// y = y_factor y + x_factor x. x A or bf16, y A, flat, of the same size; `rounded` receives y in its type, or is
  /// empty. Stream-ordered, deterministic.
  virtual void blend(Stream& stream, double x_factor, ConstTensorView x, double y_factor, TensorView y,
                     TensorView rounded) {
    pass_on(&OptimizerKernels::blend, stream, {KernelKind::optimizer, bytes_of({x, y, y, rounded})}, x_factor, x,
            y_factor, y, rounded);
  }

 private:
  /// Bytes of the ranges of `arrays`; an empty array has none.
  static double update_bytes(const UpdateRanges& ranges, std::initializer_list<ConstTensorView> arrays) {
    if (!ranges.table) return bytes_of(arrays);
    double sum = 0;
    for (const ConstTensorView& array : arrays) {
      if (array) sum += static_cast<double>(ranges.elements) * static_cast<double>(size_of(array.dtype()));
    }
    return sum;
  }
};

}  // namespace trireme
