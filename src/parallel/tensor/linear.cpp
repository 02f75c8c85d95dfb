#include "src/parallel/tensor/linear.hpp"

#include <algorithm>
#include <optional>

namespace trireme::parallel {
namespace {
/// Merges all dimensions except the last, if there is a tensor.
TensorView as_matrix(TensorView tensor) {
  if (!tensor) return tensor;
  const std::int64_t columns = tensor.shape().back();
  return tensor.reshape({columns == 0 ? 0 : tensor.numel() / columns, columns});
}
}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const TensorContext& context, const Parameter& weight, const Parameter* bias)
    : context_(context) {
  add(weight, bias);
}

void ColumnParallelLinear::add(const Parameter& weight, const Parameter* bias) {
  Projection projection;
  projection.weight = as_matrix(weight.value);
  projection.weight_gradient = as_matrix(weight.gradient);
  projection.sum = weight.sum;
  projection.sum.defer();
  projection.fp8 = Fp8Weight(context_.fp8, weight.name);
  projection.first_output = outputs_;
  const std::int64_t outputs = projection.weight.shape()[0];
  if (bias != nullptr) {
    projection.bias = bias->value.reshape({outputs});
    if (bias->gradient) projection.bias_gradient = bias->gradient.reshape({outputs});
  }
  outputs_ += outputs;
  projections_.push_back(projection);
}

template <class View>
View ColumnParallelLinear::outputs_of(const Projection& projection, View y) const {
  if (!y) return y;
  const std::int64_t n = y.numel() / outputs_, outputs = projection.weight.shape()[0];
  return y.flat(n * projection.first_output, n * outputs).reshape({n, outputs});
}

void ColumnParallelLinear::forward(ConstTensorView x, Activation activation, TensorView pre_activation,
                                   TensorView y) const {
  const ArenaScope scope(context_.workspace);
  multiply({}, context_.gather_now(x), activation, pre_activation, y);
}

void ColumnParallelLinear::multiply(RowChunk chunk, ConstTensorView x, Activation activation, TensorView pre_activation,
                                    TensorView y) const {
  GemmKernels& gemm = context_.backend.gemm();
  for (const Projection& projection : projections_) {
    const TensorView z = chunk.of(outputs_of(projection, pre_activation)), result = chunk.of(outputs_of(projection, y));
    const std::optional<Fp8Product> fp8 = projection.fp8.forward({x}, projection.weight);
    if (!projection.adapter) {
      gemm.linear(context_.stream(), x, projection.weight, projection.bias, activation, z, result, fp8);
      continue;
    }
    const bool activates = activation != Activation::none;
    const TensorView sum = activates ? z : result;
    gemm.linear(context_.stream(), x, projection.weight, projection.bias, Activation::none, {}, sum, fp8);
    projection.adapter->forward(x, sum);
    if (activates) context_.backend.elementwise().activate(context_.stream(), activation, sum, result);
  }
}

Fp8Weight::Operand ColumnParallelLinear::gradient_operand(std::size_t i, RowChunk chunk, ConstTensorView dy,
                                                          GradientCopies& copies, const Fp8Source& source) const {
  Fp8Weight::Operand operand{chunk.of(outputs_of(projections_[i], dy)), copies.empty() ? nullptr : &copies[i], source};
  operand.source.pre_activation = chunk.of(outputs_of(projections_[i], source.pre_activation));
  return operand;
}

void ColumnParallelLinear::multiply_gradient(RowChunk chunk, ConstTensorView dy, TensorView term,
                                             GradientCopies& copies, const Fp8Source& source) const {
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& projection = projections_[i];
    const ArenaScope scope(context_.workspace);
    const bool first = projection.first_output == 0;
    const TensorView product = first ? term : context_.workspace.allocate(term.dtype(), term.shape());
    const Fp8Weight::Operand rows = gradient_operand(i, chunk, dy, copies, source);
    context_.backend.gemm().linear_backward_input(context_.stream(), rows.tensor, projection.weight, Activation::none,
                                                  {}, product, projection.fp8.backward_input(rows, projection.weight));
    if (projection.adapter) projection.adapter->backward_input(rows.tensor, product);
    if (!first) context_.backend.elementwise().add(context_.stream(), product, term);
  }
}

void ColumnParallelLinear::backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx,
                                          WeightGradient weights) const {
  const ArenaScope scope(context_.workspace);
  backward_input(dy, x, dx, weights, context_.term_of(dx)).wait(context_.stream());
}

ChunkWorks ColumnParallelLinear::backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx,
                                                WeightGradient weights, TensorView term,
                                                TensorContext::Gathering* input, const Fp8Source& source) const {
  Stream& stream = context_.stream();
  const std::optional<ArenaScope> scope = context_.operand_scope();
  std::optional<TensorContext::Gathering> started;
  if (input == nullptr && weights == WeightGradient::now && trains()) input = &started.emplace(context_.gather(x));
  if (input != nullptr && !context_.overlap) input->all();
  GradientCopies copies;
  if (input != nullptr && context_.row_chunks == 1) {
    for (const Projection& projection : projections_)
      copies.push_back(projection.fp8.gradient_copy(context_.workspace, outputs_of(projection, dy),
                                                    static_cast<bool>(projection.bias_gradient)));
  }
  ChunkWorks sums;
  for (int i = 0; i < context_.row_chunks; ++i) {
    const RowChunk chunk = context_.chunk(i);
    multiply_gradient(chunk, dy, chunk.of(term), copies, source);
    sums.chunks.push_back(context_.sum_chunk(chunk.of(dx), chunk.of(term)));
    if (!context_.overlap) sums.wait(stream);
  }
  if (input != nullptr) accumulate(dy, input->all(), std::move(copies), source);
  return sums;
}

void ColumnParallelLinear::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  if (!trains()) return;
  const ArenaScope scope(context_.workspace);
  accumulate(dy, context_.gather_now(x));
}

bool ColumnParallelLinear::trains() const {
  return std::ranges::any_of(
      projections_, [](const Projection& projection) { return projection.weight_gradient || projection.adapter; });
}

bool ColumnParallelLinear::computes_sources() const {
  return context_.row_chunks == 1 && std::ranges::all_of(projections_, [](const Projection& projection) {
           return projection.fp8.computes_sources() && !projection.adapter;
         });
}

void ColumnParallelLinear::backward_in_chunks(std::int64_t chunk_rows, ConstTensorView x, TensorView dx,
                                              const ChunkGradient& gradient_of) const {
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  const ConstTensorView input = context_.gather_now(x);
  const TensorView term = context_.term_of(dx);
  const std::int64_t n = input.shape()[0];
  for (std::int64_t begin = 0; begin < n; begin += chunk_rows) {
    const std::int64_t count = std::min(chunk_rows, n - begin);
    const ConstTensorView rows = input.rows(begin, count);
    const ConstTensorView dy = gradient_of(begin, rows);
    context_.backend.gemm().linear_backward_input(stream, dy, projections_.front().weight, Activation::none, {},
                                                  term.rows(begin, count));
    // The sum runs after the last product.
    ChunkWorks sum;
    if (begin + count == n) sum = context_.sum_into(dx, term);
    if (!context_.overlap) sum.wait(stream);
    accumulate(dy, rows);
    sum.wait(stream);
  }
}

void ColumnParallelLinear::accumulate(ConstTensorView dy, ConstTensorView x, GradientCopies copies,
                                      const Fp8Source& source) const {
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& projection = projections_[i];
    const Fp8Weight::Operand outputs = gradient_operand(i, {}, dy, copies, source);
    if (projection.adapter) projection.adapter->backward_weight(outputs.tensor, x);
    if (!projection.weight_gradient) continue;
    context_.backend.gemm().linear_backward_weight(context_.stream(), outputs.tensor, x, projection.weight_gradient,
                                                   projection.bias_gradient, projection.sum.next(),
                                                   projection.fp8.backward_weight(outputs, {x}));
  }
}

RowParallelLinear::RowParallelLinear(const TensorContext& context, const Parameter& weight)
    : context_(context),
      weight_(weight.value),
      weight_gradient_(weight.gradient),
      sum_(weight.sum),
      fp8_(context.fp8, weight.name) {
  sum_.defer();
}

void RowParallelLinear::forward(ConstTensorView x, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  const TensorView term = context_.term_of(y);
  multiply(x, term);
  context_.sum_into(y, term).wait(context_.stream());
}

void RowParallelLinear::multiply(ConstTensorView x, TensorView term, Fp8Copy* copy, const Fp8Source& source) const {
  context_.backend.gemm().linear(context_.stream(), x, weight_, {}, Activation::none, {}, term,
                                 fp8_.forward({x, copy, source}, weight_));
  if (adapter_) adapter_->forward(x, term);
}

void RowParallelLinear::backward_input(ConstTensorView dy, Activation activation, ConstTensorView pre_activation,
                                       TensorView dx, Fp8Copy* copy) const {
  const bool ends_apart = adapter_ && activation != Activation::none;
  context_.backend.gemm().linear_backward_input(
      context_.stream(), dy, weight_, ends_apart ? Activation::none : activation,
      ends_apart ? ConstTensorView() : pre_activation, dx, fp8_.backward_input({dy, copy}, weight_));
  if (adapter_) adapter_->backward_input(dy, dx);
  if (ends_apart) {
    context_.backend.elementwise().activate_backward(context_.stream(), activation, dx, pre_activation, dx);
  }
}

void RowParallelLinear::backward_weight(ConstTensorView dy, ConstTensorView x, Fp8Copy* copy, Fp8Copy* input_copy,
                                        const Fp8Source& source) const {
  if (adapter_) adapter_->backward_weight(dy, x);
  if (!weight_gradient_) return;
  context_.backend.gemm().linear_backward_weight(context_.stream(), dy, x, weight_gradient_, {}, sum_.next(),
                                                 fp8_.backward_weight({dy, copy}, {x, input_copy, source}));
}

Fp8Copy RowParallelLinear::gradient_copy(ConstTensorView dy) const {
  return context_.row_chunks == 1 ? fp8_.gradient_copy(context_.workspace, dy, false) : Fp8Copy();
}

std::int64_t RowParallelLinear::input_copy_bytes(std::int64_t rows, std::int64_t columns) const {
  return context_.row_chunks == 1 && !adapter_ ? fp8_.input_copy_bytes(rows, columns) : 0;
}

}  // namespace trireme::parallel
