#pragma once

#include <array>

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
};

/// One step of SGD with momentum and L2 regularisation, as in PyTorch's torch.optim.SGD without dampening.
struct SgdStep {
  UpdateRateTable rates = {};
  double momentum = 0.9;
  double gradient_scale = 1;  ///< the gradient is multiplied by this first (clipping, inverse loss scale)
};

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
