#pragma once

#include "src/backend/kernels/dropout.hpp"
#include "src/backend/kernels/gemm.hpp"
#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Operations on elements. T the training type, A its accumulation type. Stream-ordered, deterministic.
class ElementwiseKernels {
 public:
  virtual ~ElementwiseKernels() = default;

  /// y = value, for every element; any floating-point type.
  virtual void fill(Stream& stream, double value, TensorView y) = 0;
  /// y = x, rounded to y's type (nearest, ties to even); same size, any floating-point types.
  virtual void convert(Stream& stream, ConstTensorView x, TensorView y) = 0;
  /// y += x, same size and type.
  virtual void add(Stream& stream, ConstTensorView x, TensorView y) = 0;
  /// y *= factor.
  virtual void scale(Stream& stream, double factor, TensorView y) = 0;
  /// y /= max(sqrt(squares), least): the norm is read where the device has it, and the host does not wait. squares [1]
  /// fp64, as ReduceKernels::sum_squares leaves it.
  virtual void divide_by_norm(Stream& stream, ConstTensorView squares, double least, TensorView y) = 0;

  /// sum = residual + dropout(x + bias). x, residual, sum [s, b, h] T; bias [h] T or empty. Overwrites; `sum` may be
  /// the same memory as x or residual.
  virtual void bias_dropout_add(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                const Dropout& dropout, TensorView sum) = 0;
  /// dx = dropout mask and scale applied to dsum; dbias += sum of dx over rows. dsum, dx [s, b, h] T; dbias [h] A or
  /// empty. dx may be the same memory as dsum. (The residual's gradient is dsum itself.)
  virtual void bias_dropout_add_backward(Stream& stream, ConstTensorView dsum, const Dropout& dropout, TensorView dx,
                                         TensorView dbias) = 0;

  /// y = activation(x), same size and type.
  virtual void activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y) = 0;
  /// dx = dy activation'(x), same size and type. dx may be the same memory as dy.
  virtual void activate_backward(Stream& stream, Activation activation, ConstTensorView dy, ConstTensorView x,
                                 TensorView dx) = 0;

  /// SwiGLU (Shazeer 2020, arXiv:2002.05202): y = silu(gate) up, silu(x) = x / (1 + exp(-x)). gate_up [n, 2 f] T: the
  /// gate's f columns and then those of up; y [n, f] T. Overwrites.
  virtual void swiglu(Stream& stream, ConstTensorView gate_up, TensorView y) = 0;
  /// dgate = dy up silu'(gate), dup = dy silu(gate). dy [n, f] T; gate_up, dgate_up [n, 2 f] T. Overwrites; dgate_up
  /// may be the same memory as gate_up.
  virtual void swiglu_backward(Stream& stream, ConstTensorView dy, ConstTensorView gate_up, TensorView dgate_up) = 0;
};

}  // namespace trireme
