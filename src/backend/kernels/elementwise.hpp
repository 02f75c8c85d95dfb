#pragma once

#include "src/backend/kernels/dropout.hpp"
#include "src/backend/kernels/gemm.hpp"

namespace trireme {

/// Operations on elements. T the training type, A its accumulation type. Stream-ordered, deterministic.
class ElementwiseKernels : public KernelFamily<ElementwiseKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// y = value, for every element; any floating-point type.
  virtual void fill(Stream& stream, double value, TensorView y) {
    pass_on(&ElementwiseKernels::fill, stream, {KernelKind::gradients, bytes_of({y})}, value, y);
  }
  /// y = x, rounded to y's type (nearest, ties to even); same size, any floating-point types.
  virtual void convert(Stream& stream, ConstTensorView x, TensorView y) {
    pass_on(&ElementwiseKernels::convert, stream, {KernelKind::copies, bytes_of({x, y})}, x, y);
  }
  /// y += x, same size and type.
  virtual void add(Stream& stream, ConstTensorView x, TensorView y) {
    pass_on(&ElementwiseKernels::add, stream, {KernelKind::copies, bytes_of({x, y, y})}, x, y);
  }
  /// y *= x, same size and type.
  virtual void multiply(Stream& stream, ConstTensorView x, TensorView y) {
    pass_on(&ElementwiseKernels::multiply, stream, {KernelKind::copies, bytes_of({x, y, y})}, x, y);
  }
  /// y *= factor.
  virtual void scale(Stream& stream, double factor, TensorView y) {
    pass_on(&ElementwiseKernels::scale, stream, {KernelKind::copies, bytes_of({y, y})}, factor, y);
  }
  /// y[i] = x[i] / max(sqrt(squares[i]), least) for each of n equal parts of x and y: norms are read on the device, and
  /// the host does not wait. squares [n] fp64 are results of ReduceKernels::sum_squares. x, y have the same size and
  /// type, and may be the same memory. Part of the optimizer's line.
  virtual void divide_by_norms(Stream& stream, ConstTensorView squares, double least, ConstTensorView x, TensorView y) {
    pass_on(&ElementwiseKernels::divide_by_norms, stream, {KernelKind::optimizer, bytes_of({x, y})}, squares, least, x,
            y);
  }

  /// sum = residual + dropout(x + bias). x, residual, sum [s, b, h] T; bias [h] T or empty. Overwrites; `sum` may be
  /// the same memory as x or residual.
  virtual void bias_dropout_add(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                const Dropout& dropout, TensorView sum) {
    pass_on(&ElementwiseKernels::bias_dropout_add, stream, {KernelKind::dropout, bytes_of({x, residual, sum})}, x, bias,
            residual, dropout, sum);
  }
  /// dx = dropout mask and scale applied to dsum; dbias += sum of dx over rows. dsum, dx [s, b, h] T; dbias [h] A or
  /// empty. dx may be the same memory as dsum. (The residual's gradient is dsum itself.)
  virtual void bias_dropout_add_backward(Stream& stream, ConstTensorView dsum, const Dropout& dropout, TensorView dx,
                                         TensorView dbias) {
    const bool writes = dropout.enabled() || dsum.data() != dx.data(), idle = !dbias && !writes;
    pass_on(&ElementwiseKernels::bias_dropout_add_backward, stream,
            {.kind = KernelKind::dropout,
             .bytes = idle ? 0 : bytes_of({dsum, writes ? dx : TensorView()}),
             .launches = idle    ? 0
                         : dbias ? 2
                                 : 1,
             .extents = sums_of(dsum, {dbias})},
            dsum, dropout, dx, dbias);
  }

  /// y = activation(x), same size and type.
  virtual void activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y) {
    pass_on(&ElementwiseKernels::activate, stream, {KernelKind::activation, bytes_of({x, y})}, activation, x, y);
  }
  /// dx = dy activation'(x), same size and type. dx may be the same memory as dy.
  virtual void activate_backward(Stream& stream, Activation activation, ConstTensorView dy, ConstTensorView x,
                                 TensorView dx) {
    pass_on(&ElementwiseKernels::activate_backward, stream, {KernelKind::activation, bytes_of({dy, x, dx})}, activation,
            dy, x, dx);
  }

  /// Gated linear unit (Shazeer 2020, arXiv:2002.05202): y = activation(gate) up, SwiGLU with silu, GeGLU with
  /// gelu_tanh. gate_up [n, 2 f] T: the f columns of gate, then those of up; y [n, f] T. Overwrites. ShapeError for
  /// other activations.
  virtual void glu(Stream& stream, Activation activation, ConstTensorView gate_up, TensorView y) {
    pass_on(&ElementwiseKernels::glu, stream, {KernelKind::activation, bytes_of({gate_up, y})}, activation, gate_up, y);
  }
  /// dgate = dy up activation'(gate), dup = dy activation(gate). dy [n, f] T; gate_up, dgate_up [n, 2 f] T. Overwrites;
  /// dgate_up may be the same memory as gate_up.
  virtual void glu_backward(Stream& stream, Activation activation, ConstTensorView dy, ConstTensorView gate_up,
                            TensorView dgate_up) {
    pass_on(&ElementwiseKernels::glu_backward, stream, {KernelKind::activation, bytes_of({dy, gate_up, dgate_up})},
            activation, dy, gate_up, dgate_up);
  }

  /// y = cap tanh(y / cap), cap > 0: between -cap and cap (soft cap; Gemma Team 2024, arXiv:2408.00118).
  virtual void soft_cap(Stream& stream, double cap, TensorView y) {
    pass_on(&ElementwiseKernels::soft_cap, stream, {KernelKind::activation, bytes_of({y, y})}, cap, y);
  }
};

}  // namespace trireme
