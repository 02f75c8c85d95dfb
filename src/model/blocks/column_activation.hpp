#pragma once

#include "src/backend/backend.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::model {

/// Activation of the expanded columns of a feed-forward block, a = act(z): elementwise, or gated, with halves gate and
/// up of z, a = function(gate) up. z [rows, f], gated [rows, 2 f]; a [rows, f].
struct ColumnActivation {
  bool gated = false;
  Activation function = Activation::none;  ///< that of the gate, if gated

  std::int64_t expanded_columns(std::int64_t columns) const { return gated ? 2 * columns : columns; }

  /// Allocates a tensor like a, for the z given.
  TensorView allocate(Arena& arena, ConstTensorView z) const {
    const Shape& shape = z.shape();
    return arena.allocate(z.dtype(), {shape[0], gated ? shape[1] / 2 : shape[1]});
  }
  /// Computes a, allocated in `arena`. Stream-ordered.
  TensorView forward(Backend& backend, Stream& stream, ConstTensorView z, Arena& arena) const {
    const TensorView a = allocate(arena, z);
    if (gated) {
      backend.elementwise().glu(stream, function, z, a);
    } else {
      backend.elementwise().activate(stream, function, z, a);
    }
    return a;
  }
  /// dz = da act'(z); overwrites. Aliasing as in ElementwiseKernels. Stream-ordered.
  void backward(Backend& backend, Stream& stream, ConstTensorView da, ConstTensorView z, TensorView dz) const {
    if (gated) {
      backend.elementwise().glu_backward(stream, function, da, z, dz);
    } else {
      backend.elementwise().activate_backward(stream, function, da, z, dz);
    }
  }
};

}  // namespace trireme::model
