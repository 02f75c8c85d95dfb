#include "src/model/attention.hpp"

#include <cmath>

namespace trireme::model {
namespace {

/// One of Q, K and V (part 0, 1, 2) within [s, b, parts, a_local, d].
template <class View>
HeadsOf<View> part_of(View qkv, const LayerShape& shape, int part, int parts = 3) {
  const std::int64_t columns = shape.attention_columns();
  const auto skip = static_cast<std::int64_t>(size_of(shape.dtype)) * part * columns;
  return {View(qkv.data() + skip, qkv.dtype(), qkv.shape()), shape.b * parts * columns, parts * columns, shape.d};
}
template <class View>
HeadsOf<View> heads_of(View tensor, const LayerShape& shape) {
  return part_of(tensor, shape, 0, 1);
}

}  // namespace

SelfAttention::Saved SelfAttention::Saved::allocate(const LayerShape& shape, Arena& arena) {
  Saved saved;
  saved.qkv = shape.allocate(arena, 3 * shape.attention_columns());
  saved.heads_out = shape.allocate(arena, shape.attention_columns());
  saved.log_sum_exp = arena.allocate(accumulation_type(shape.dtype), {shape.b, shape.a_local, shape.s});
  return saved;
}

SelfAttention::SelfAttention(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                             const std::string& prefix, int layer, std::int64_t first_head)
    : context_(context),
      qkv_(context, parameters.at(prefix + ".qkv.weight"), &parameters.at(prefix + ".qkv.bias")),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      layer_(layer),
      first_head_(first_head) {}

AttentionProblem SelfAttention::problem(const LayerShape& shape, std::int64_t keys, const Dropout& dropout) const {
  AttentionProblem problem;
  problem.queries = shape.s;
  problem.keys = keys;
  problem.batch = shape.b;
  problem.heads = shape.a_local;
  problem.kv_heads = shape.a_local;
  problem.head_dim = shape.d;
  problem.scale = 1 / std::sqrt(static_cast<double>(shape.d));
  problem.dropout = dropout;
  problem.first_head = first_head_;
  return problem;
}

void SelfAttention::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                            TensorView y) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  saved.input = x;
  qkv_.forward(shape.as_rows(x), Activation::none, {}, saved.qkv.reshape({n, 3 * columns}));
  const ConstTensorView qkv = saved.qkv;
  context_.backend.attention().attention(context_.stream(),
                                         problem(shape, shape.s, dropout.at(layer_, DropoutSite::attention_scores)),
                                         part_of(qkv, shape, 0), part_of(qkv, shape, 1), part_of(qkv, shape, 2),
                                         heads_of(saved.heads_out, shape), saved.log_sum_exp);
  projection_.forward(saved.heads_out.reshape({n, columns}), shape.as_rows(y));
}

SelfAttention::Gradients SelfAttention::backward_input(const LayerShape& shape, ConstTensorView dy,
                                                       const DropoutPlan& dropout, const Saved& saved, Arena& arena,
                                                       TensorView dx, parallel::WeightGradient weights) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  const Gradients gradients{dy, shape.allocate(arena, 3 * columns)};
  {
    const ArenaScope scope(context_.workspace);
    const TensorView dheads = shape.allocate(context_.workspace, columns);
    const TensorView row_dot = context_.workspace.allocate(saved.log_sum_exp.dtype(), saved.log_sum_exp.shape());
    projection_.backward_input(shape.as_rows(dy), saved.heads_out.reshape({n, columns}), Activation::none, {},
                               dheads.reshape({n, columns}), weights);
    const ConstTensorView qkv = saved.qkv;
    context_.backend.attention().attention_backward(
        context_.stream(), problem(shape, shape.s, dropout.at(layer_, DropoutSite::attention_scores)),
        heads_of(ConstTensorView(dheads), shape), part_of(qkv, shape, 0), part_of(qkv, shape, 1),
        part_of(qkv, shape, 2), heads_of(ConstTensorView(saved.heads_out), shape), saved.log_sum_exp, row_dot,
        part_of(gradients.qkv, shape, 0), part_of(gradients.qkv, shape, 1), part_of(gradients.qkv, shape, 2));
  }
  qkv_.backward_input(gradients.qkv.reshape({n, 3 * columns}), shape.as_rows(saved.input), shape.as_rows(dx), weights);
  return gradients;
}

void SelfAttention::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  projection_.backward_weight(shape.as_rows(gradients.output), saved.heads_out.reshape({n, columns}));
  qkv_.backward_weight(gradients.qkv.reshape({n, 3 * columns}), shape.as_rows(saved.input));
}

void SelfAttention::forward_cached(const LayerShape& shape, ConstTensorView x, KeyValueCache& cache,
                                   TensorView y) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  const ArenaScope scope(context_.workspace);
  const TensorView qkv = context_.workspace.allocate(shape.dtype, {n, 3 * columns});
  const TensorView heads_out = context_.workspace.allocate(shape.dtype, {n, columns});
  const TensorView log_sum_exp =
      context_.workspace.allocate(accumulation_type(shape.dtype), {shape.b, shape.a_local, shape.s});
  qkv_.forward(shape.as_rows(x), Activation::none, {}, qkv);
  // Row i of qkv is [q | k | v]; its k and v go behind those of the positions before.
  for (std::int64_t i = 0; i < n; ++i) {
    context_.backend.elementwise().convert(context_.stream(), qkv.flat((3 * i + 1) * columns, 2 * columns),
                                           cache.data.flat((cache.length * shape.b + i) * 2 * columns, 2 * columns));
  }
  cache.length += shape.s;
  const ConstTensorView keys_and_values = cache.data;
  context_.backend.attention().attention(context_.stream(), problem(shape, cache.length, {}),
                                         part_of(ConstTensorView(qkv), shape, 0), part_of(keys_and_values, shape, 0, 2),
                                         part_of(keys_and_values, shape, 1, 2), heads_of(heads_out, shape),
                                         log_sum_exp);
  projection_.forward(heads_out, shape.as_rows(y));
}

}  // namespace trireme::model
