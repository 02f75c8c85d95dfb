#include "src/parallel/tensor/low_rank_term.hpp"

namespace trireme::parallel {

LowRankTerm::LowRankTerm(const TensorContext& context, const Parameter& a, const Parameter& b, double scale)
    : context_(context), a_(matrix_of(a)), b_(matrix_of(b)), scale_(scale) {}

LowRankTerm::Matrix LowRankTerm::matrix_of(const Parameter& parameter) {
  const std::int64_t columns = parameter.storage.back();
  const Shape shape{parameter.stored_numel() / columns, columns};
  parameter.sum.defer();
  return {parameter.value.reshape(shape), parameter.gradient.reshape(shape), parameter.sum};
}

TensorView LowRankTerm::narrow(ConstTensorView x) const {
  const TensorView u = context_.workspace.allocate(x.dtype(), {x.shape()[0], a_.value.shape()[0]});
  context_.backend.gemm().linear(context_.stream(), x, a_.value, {}, Activation::none, {}, u);
  context_.backend.elementwise().scale(context_.stream(), scale_, u);
  return u;
}

TensorView LowRankTerm::narrow_gradient(ConstTensorView dy) const {
  const TensorView du = context_.workspace.allocate(dy.dtype(), {dy.shape()[0], b_.value.shape()[1]});
  context_.backend.gemm().linear_backward_input(context_.stream(), dy, b_.value, Activation::none, {}, du);
  context_.backend.elementwise().scale(context_.stream(), scale_, du);
  return du;
}

void LowRankTerm::forward(ConstTensorView x, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  const TensorView product = context_.workspace.allocate(y.dtype(), y.shape());
  context_.backend.gemm().linear(context_.stream(), narrow(x), b_.value, {}, Activation::none, {}, product);
  context_.backend.elementwise().add(context_.stream(), product, y);
}

void LowRankTerm::backward_input(ConstTensorView dy, TensorView dx) const {
  const ArenaScope scope(context_.workspace);
  const TensorView product = context_.workspace.allocate(dx.dtype(), dx.shape());
  context_.backend.gemm().linear_backward_input(context_.stream(), narrow_gradient(dy), a_.value, Activation::none, {},
                                                product);
  context_.backend.elementwise().add(context_.stream(), product, dx);
}

void LowRankTerm::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  const ArenaScope scope(context_.workspace);
  GemmKernels& gemm = context_.backend.gemm();
  gemm.linear_backward_weight(context_.stream(), dy, narrow(x), b_.gradient, {}, b_.sum.next());
  gemm.linear_backward_weight(context_.stream(), narrow_gradient(dy), x, a_.gradient, {}, a_.sum.next());
}

}  // namespace trireme::parallel
