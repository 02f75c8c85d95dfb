#include "src/parallel/tensor/low_rank_term.hpp"

namespace trireme::parallel {
namespace {

std::int64_t columns_of(const Parameter& parameter) { return parameter.storage.back(); }
std::int64_t rows_of(const Parameter& parameter) { return parameter.stored_numel() / columns_of(parameter); }

/// Calls function(rows) with the rows of each group of a tensor.
template <class Function>
void with_groups(ConstTensorView x, LowRankTerm::GroupRows rows, const Function& function) {
  const std::int64_t all = x.shape()[0];
  function(rows.empty() ? LowRankTerm::GroupRows(&all, 1) : rows);
}

}  // namespace

void LowRankTerm::add(Matrices& matrices, const Parameter& parameter, std::int64_t first, std::int64_t rows) {
  const Shape shape{rows_of(parameter), columns_of(parameter)};
  matrices.values.push_back(parameter.value.reshape(shape).rows(first, rows));
  matrices.gradients.push_back(parameter.gradient.reshape(shape).rows(first, rows));
  matrices.sums.push_back(parameter.sum);
}

void LowRankTerm::adapt(const Parameter& a, const Parameter& b, double scale) {
  adapt_outputs(a, b, scale, 0, rows_of(b));
  b.sum.defer();
}

void LowRankTerm::adapt_outputs(const Parameter& a, const Parameter& b, double scale, std::int64_t first,
                                std::int64_t outputs) {
  scale_ = scale;
  add(a_, a, 0, rows_of(a));
  add(b_, b, first, outputs);
  a.sum.defer();
}

TensorView LowRankTerm::narrow(ConstTensorView x, GroupRows rows) const {
  const TensorView u = context_.workspace.allocate(x.dtype(), {x.shape()[0], a_.values.front().shape()[0]});
  context_.backend.gemm().grouped_linear(context_.stream(), rows, x, a_.values, u);
  context_.backend.elementwise().scale(context_.stream(), scale_, u);
  return u;
}

TensorView LowRankTerm::narrow_gradient(ConstTensorView dy, GroupRows rows) const {
  const TensorView du = context_.workspace.allocate(dy.dtype(), {dy.shape()[0], b_.values.front().shape()[1]});
  context_.backend.gemm().grouped_backward_input(context_.stream(), rows, dy, b_.values, du);
  context_.backend.elementwise().scale(context_.stream(), scale_, du);
  return du;
}

void LowRankTerm::forward(ConstTensorView x, TensorView y, GroupRows rows) const {
  const ArenaScope scope(context_.workspace);
  const TensorView product = context_.workspace.allocate(y.dtype(), y.shape());
  with_groups(x, rows, [&](GroupRows groups) {
    context_.backend.gemm().grouped_linear(context_.stream(), groups, narrow(x, groups), b_.values, product);
  });
  context_.backend.elementwise().add(context_.stream(), product, y);
}

void LowRankTerm::backward_input(ConstTensorView dy, TensorView dx, GroupRows rows) const {
  const ArenaScope scope(context_.workspace);
  const TensorView product = context_.workspace.allocate(dx.dtype(), dx.shape());
  with_groups(dy, rows, [&](GroupRows groups) {
    context_.backend.gemm().grouped_backward_input(context_.stream(), groups, narrow_gradient(dy, groups), a_.values,
                                                   product);
  });
  context_.backend.elementwise().add(context_.stream(), product, dx);
}

void LowRankTerm::backward_weight(ConstTensorView dy, ConstTensorView x, GroupRows rows) const {
  const ArenaScope scope(context_.workspace);
  with_groups(dy, rows, [&](GroupRows groups) {
    GemmKernels& gemm = context_.backend.gemm();
    gemm.grouped_backward_weight(context_.stream(), groups, dy, narrow(x, groups), b_.gradients,
                                 next_sums(b_.sums, groups));
    gemm.grouped_backward_weight(context_.stream(), groups, narrow_gradient(dy, groups), x, a_.gradients,
                                 next_sums(a_.sums, groups));
  });
}

}  // namespace trireme::parallel
