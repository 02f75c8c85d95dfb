#include "src/model/heads/squared_error.hpp"

namespace trireme::model {

TensorView SquaredError::differences(ConstTensorView x, ConstTensorView targets, Arena& arena) const {
  Stream& stream = backend_.compute_stream();
  ElementwiseKernels& kernels = backend_.elementwise();
  const Shape n{targets.numel()};
  const DType type = accumulation_type(x.dtype());
  const TensorView result = arena.allocate(type, n), values = arena.allocate(type, n);
  kernels.convert(stream, {targets.data(), DType::fp32, n}, result);
  kernels.scale(stream, -1, result);
  kernels.convert(stream, x.reshape(n), values);
  kernels.add(stream, values, result);
  return result;
}

ConstTensorView SquaredError::losses(ConstTensorView differences, ConstTensorView weights, Arena& arena) const {
  Stream& stream = backend_.compute_stream();
  ElementwiseKernels& kernels = backend_.elementwise();
  const TensorView result = arena.allocate(differences.dtype(), differences.shape());
  kernels.convert(stream, differences, result);
  kernels.multiply(stream, differences, result);
  kernels.multiply(stream, weights, result);
  return result;
}

void SquaredError::backward(TensorView differences, ConstTensorView gradient, TensorView dx) const {
  Stream& stream = backend_.compute_stream();
  ElementwiseKernels& kernels = backend_.elementwise();
  kernels.multiply(stream, gradient, differences);
  kernels.scale(stream, 2, differences);
  kernels.convert(stream, differences, dx.reshape(differences.shape()));
}

}  // namespace trireme::model
