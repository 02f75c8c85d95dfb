#include "src/parallel/tensor/linear.hpp"

namespace trireme::parallel {
namespace {
/// All dimensions but the last taken together.
TensorView as_matrix(TensorView tensor) {
  const std::int64_t columns = tensor.shape().back();
  return tensor.reshape({columns == 0 ? 0 : tensor.numel() / columns, columns});
}
}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const TensorContext& context, const Parameter& weight, const Parameter* bias)
    : context_(context), weight_(as_matrix(weight.value)), weight_gradient_(as_matrix(weight.gradient)) {
  if (bias != nullptr) {
    bias_ = bias->value.reshape({outputs()});
    bias_gradient_ = bias->gradient.reshape({outputs()});
  }
}

void ColumnParallelLinear::forward(ConstTensorView x, Activation activation, TensorView pre_activation,
                                   TensorView y) const {
  context_.backend.gemm().linear(context_.stream(), x, weight_, bias_, activation, pre_activation, y);
}

void ColumnParallelLinear::backward_input(ConstTensorView dy, TensorView dx) const {
  context_.backend.gemm().linear_backward_input(context_.stream(), dy, weight_, Activation::none, {}, dx);
  context_.all_reduce(dx);
}

void ColumnParallelLinear::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  context_.backend.gemm().linear_backward_weight(context_.stream(), dy, x, weight_gradient_, bias_gradient_);
}

RowParallelLinear::RowParallelLinear(const TensorContext& context, const Parameter& weight)
    : context_(context), weight_(weight.value), weight_gradient_(weight.gradient) {}

void RowParallelLinear::forward(ConstTensorView x, TensorView y) const {
  context_.backend.gemm().linear(context_.stream(), x, weight_, {}, Activation::none, {}, y);
  context_.all_reduce(y);
}

void RowParallelLinear::backward_input(ConstTensorView dy, Activation activation, ConstTensorView pre_activation,
                                       TensorView dx) const {
  context_.backend.gemm().linear_backward_input(context_.stream(), dy, weight_, activation, pre_activation, dx);
}

void RowParallelLinear::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  context_.backend.gemm().linear_backward_weight(context_.stream(), dy, x, weight_gradient_, {});
}

}  // namespace trireme::parallel
