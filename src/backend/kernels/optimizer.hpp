#pragma once

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// One step of AdamW (Loshchilov, Hutter 2017, arXiv:1711.05101), bias-corrected, with decoupled weight decay.
struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t update = 1;    ///< number of this update, from 1: corrections are 1 - beta^update
  double gradient_scale = 1;  ///< the gradient is multiplied by this first (clipping, inverse loss scale)
};

/// One step of SGD with momentum and L2 regularisation, as in PyTorch's torch.optim.SGD without dampening.
struct SgdStep {
  double learning_rate = 0;
  double momentum = 0.9;
  double weight_decay = 0;
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

  /// g = gradient_scale gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  /// w = w (1 - learning_rate weight_decay) - learning_rate (m / c1) / (sqrt(v / c2) + epsilon), c = 1 - beta^update.
  /// gradient, w (the master weights), m, v: flat, same size, type A, w, m and v updated in place; `rounded` receives w
  /// in the training type, or is empty if w is the model's own. m and v may each be bf16 if A is fp32: widened to fp32,
  /// and rounded to nearest even after w is updated. Stream-ordered, deterministic.
  virtual void adamw(Stream& stream, const AdamWStep& step, ConstTensorView gradient, TensorView w, TensorView m,
                     TensorView v, TensorView rounded) {
    pass_on(&OptimizerKernels::adamw, stream, {KernelKind::optimizer, bytes_of({gradient, w, w, m, m, v, v, rounded})},
            step, gradient, w, m, v, rounded);
  }

  /// m = momentum m + gradient_scale gradient + weight_decay w;  w = w - learning_rate m.
  /// gradient, w (the master weights), m: flat, same size, type A, w and m updated in place; m is 0 before the first
  /// step. `rounded` receives w in the training type, or is empty if w is the model's own. Stream-ordered,
  /// deterministic.
  virtual void sgd(Stream& stream, const SgdStep& step, ConstTensorView gradient, TensorView w, TensorView m,
                   TensorView rounded) {
    pass_on(&OptimizerKernels::sgd, stream, {KernelKind::optimizer, bytes_of({gradient, w, w, m, m, rounded})}, step,
            gradient, w, m, rounded);
  }
};

}  // namespace trireme
