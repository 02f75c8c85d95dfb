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
  const ArenaScope scope(context_.workspace);
  context_.backend.gemm().linear(context_.stream(), context_.gather_now(x), weight_, bias_, activation, pre_activation,
                                 y);
}

void ColumnParallelLinear::backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx,
                                          WeightGradient weights) const {
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  TensorContext::Gathering input;
  if (weights == WeightGradient::now) input = context_.gather(x);
  if (!context_.overlap) input.arrival.wait(stream);
  const TensorView term = context_.term_of(dx);
  context_.backend.gemm().linear_backward_input(stream, dy, weight_, Activation::none, {}, term);
  Work sum = context_.sum_into(dx, term);
  if (!context_.overlap) sum.wait(stream);
  if (weights == WeightGradient::now) {
    input.arrival.wait(stream);
    context_.backend.gemm().linear_backward_weight(stream, dy, input.data, weight_gradient_, bias_gradient_);
  }
  sum.wait(stream);
}

void ColumnParallelLinear::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  const ArenaScope scope(context_.workspace);
  context_.backend.gemm().linear_backward_weight(context_.stream(), dy, context_.gather_now(x), weight_gradient_,
                                                 bias_gradient_);
}

RowParallelLinear::RowParallelLinear(const TensorContext& context, const Parameter& weight)
    : context_(context), weight_(weight.value), weight_gradient_(weight.gradient) {}

void RowParallelLinear::forward(ConstTensorView x, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  const TensorView term = context_.term_of(y);
  context_.backend.gemm().linear(context_.stream(), x, weight_, {}, Activation::none, {}, term);
  context_.sum_into(y, term).wait(context_.stream());
}

void RowParallelLinear::backward_input(ConstTensorView dy, ConstTensorView x, Activation activation,
                                       ConstTensorView pre_activation, TensorView dx, WeightGradient weights) const {
  const ArenaScope scope(context_.workspace);
  const ConstTensorView gathered = context_.gather_now(dy);
  context_.backend.gemm().linear_backward_input(context_.stream(), gathered, weight_, activation, pre_activation, dx);
  if (weights == WeightGradient::now) {
    context_.backend.gemm().linear_backward_weight(context_.stream(), gathered, x, weight_gradient_, {});
  }
}

void RowParallelLinear::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  const ArenaScope scope(context_.workspace);
  context_.backend.gemm().linear_backward_weight(context_.stream(), context_.gather_now(dy), x, weight_gradient_, {});
}

}  // namespace trireme::parallel
