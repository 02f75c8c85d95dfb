#include "src/model/blocks/attention.hpp"

#include <algorithm>
#include <utility>

namespace trireme::model {
namespace {

/// Heads at `offset` elements into `tensor`, with `row` elements for each position and sample.
template <class View>
HeadsOf<View> heads_at(View tensor, const LayerShape& shape, std::int64_t offset, std::int64_t row) {
  const auto skip = static_cast<std::int64_t>(size_of(shape.dtype)) * offset;
  return {View(tensor.data() + skip, tensor.dtype(), tensor.shape()), shape.b * row, row, shape.d};
}
/// Q, K or V (`index` 0, 1, 2) within SelfAttention::Saved::qkv.
template <class View>
HeadsOf<View> qkv_heads(View qkv, const LayerShape& shape, int index) {
  const std::int64_t q = shape.attention_columns(), kv = shape.kv_columns();
  if (!shape.grouped()) return heads_at(qkv, shape, index * q, 3 * q);
  if (index == 0) return heads_at(qkv, shape, 0, q);
  return heads_at(qkv, shape, shape.rows() * q + (index - 1) * kv, 2 * kv);
}
template <class View>
HeadsOf<View> heads_of(View tensor, const LayerShape& shape) {
  return heads_at(tensor, shape, 0, shape.attention_columns());
}

/// Heads of the samples from `sample` on.
ConstHeads from_sample(ConstHeads heads, std::int64_t sample) {
  const auto skip = static_cast<std::int64_t>(size_of(heads.data.dtype())) * sample * heads.sample_stride;
  heads.data = ConstTensorView(heads.data.data() + skip, heads.data.dtype(), heads.data.shape());
  return heads;
}

/// Extents of Q (`index` 0), K or V.
HeadsShape heads_shape(const LayerShape& shape, int index) {
  return {shape.s, shape.b, index == 0 ? shape.a_local : shape.kv_local, shape.d};
}

/// Linear layer of queries, keys and values: one weight, or with grouped queries two.
parallel::ColumnParallelLinear make_qkv(const parallel::TensorContext& context,
                                        const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                        const ModelConfig& config) {
  const bool grouped = config.kv_heads() != config.heads;
  const std::string first = prefix + (grouped ? ".q" : ".qkv");
  parallel::ColumnParallelLinear qkv(context, parameters.at(first + ".weight"), parameters.find(first + ".bias"));
  if (grouped) qkv.add(parameters.at(prefix + ".kv.weight"), parameters.find(prefix + ".kv.bias"));
  return qkv;
}

}  // namespace

void SelfAttention::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  const std::int64_t a = config.heads, d = config.head_dim(), h = config.hidden;
  if (config.kv_heads() == a) {
    list.column_parallel(prefix + ".qkv", config.has_qkv_bias(), {3, a, d, h}, 1);
  } else {
    list.column_parallel(prefix + ".q", config.has_qkv_bias(), {a, d, h}, 0);
    list.column_parallel(prefix + ".kv", config.has_qkv_bias(), {2, config.kv_heads(), d, h}, 1);
  }
  if (config.qk_norm) {
    HeadNorm::declare(list, config, prefix + ".q_ln", a);
    HeadNorm::declare(list, config, prefix + ".k_ln", config.kv_heads());
  }
  list.row_parallel(prefix + ".proj", config.linear_bias, h, a * d);
}

SelfAttention::SelfAttention(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                             const std::string& prefix, const ModelConfig& config, int layer, std::int64_t first_head)
    : context_(context),
      qkv_(make_qkv(context, parameters, prefix, config)),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      rotary_(config.rotary_of(layer)),
      scale_(config.score_scale()),
      soft_cap_(config.attention_soft_cap),
      window_(config.window.of(layer)),
      alibi_heads_(config.position_embedding == PositionEmbedding::alibi ? config.heads : 0),
      layer_(layer),
      first_head_(first_head) {
  if (!config.qk_norm) return;
  query_norm_.emplace(context, parameters, prefix + ".q_ln", config);
  key_norm_.emplace(context, parameters, prefix + ".k_ln", config);
}

SelfAttention::Saved SelfAttention::make_saved(const LayerShape& shape, bool selective, Arena& arena) const {
  Saved saved;
  saved.qkv = shape.allocate(arena, shape.qkv_columns());
  if (query_norm_) {
    saved.queries = query_norm_->make_saved(shape, shape.a_local, arena);
    saved.keys = key_norm_->make_saved(shape, shape.kv_local, arena);
  }
  if (selective) return saved;
  saved.heads_out = shape.allocate(arena, shape.attention_columns());
  saved.log_sum_exp = shape.allocate_log_sum_exp(arena);
  return saved;
}

SelfAttention::Gradients SelfAttention::make_gradients(const LayerShape& shape, bool selective, Arena& arena) const {
  Gradients gradients;
  gradients.output = shape.allocate_residual(arena);
  gradients.qkv = shape.allocate(arena, shape.qkv_columns());
  if (selective) gradients.heads_out = shape.allocate(arena, shape.attention_columns());
  return gradients;
}

void SelfAttention::normalise(const LayerShape& shape, TensorView qkv, const HeadNorm::Saved& queries,
                              const HeadNorm::Saved& keys) const {
  if (!query_norm_) return;
  query_norm_->forward(heads_shape(shape, 0), qkv_heads(qkv, shape, 0), queries);
  key_norm_->forward(heads_shape(shape, 1), qkv_heads(qkv, shape, 1), keys);
}

void SelfAttention::rotate(const LayerShape& shape, TensorView qkv, Rotation rotation) const {
  if (rotary_.channels == 0) return;
  RotaryKernels& kernels = context_.backend.rotary();
  for (const auto& [index, heads] : {std::pair{0, shape.a_local}, {1, shape.kv_local}}) {
    kernels.rotate(context_.stream(), rotary_,
                   {qkv_heads(qkv, shape, index), shape.s, shape.b, heads, shape.positions, shape.position_ids},
                   rotation);
  }
}

AttentionProblem SelfAttention::problem(const LayerShape& shape, std::int64_t keys, const Dropout& dropout) const {
  AttentionProblem problem;
  problem.queries = shape.s;
  problem.keys = keys;
  problem.first_query = keys - shape.s;
  problem.batch = shape.b;
  problem.heads = shape.a_local;
  problem.kv_heads = shape.kv_local;
  problem.head_dim = shape.d;
  problem.scale = scale_;
  problem.soft_cap = soft_cap_;
  problem.causal = shape.causal;
  problem.lengths = shape.lengths;
  problem.first_visible = shape.first_visible;
  problem.window = window_;
  problem.alibi_heads = alibi_heads_;
  problem.dropout = dropout;
  problem.first_head = first_head_;
  return problem;
}

void SelfAttention::attend(const LayerShape& shape, const DropoutPlan& dropout, ConstTensorView qkv,
                           TensorView heads_out, TensorView log_sum_exp) const {
  const AttentionProblem whole = problem(shape, shape.s, dropout.at(layer_, DropoutSite::attention_scores));
  const ConstHeads q = qkv_heads(qkv, shape, 0), k = qkv_heads(qkv, shape, 1), v = qkv_heads(qkv, shape, 2);
  const Heads out = heads_of(heads_out, shape);
  if (context_.context_group != nullptr) {
    ring().forward(whole, q, k, v, out, log_sum_exp);
  } else {
    context_.backend.attention().attention(context_.stream(), whole, q, k, v, out, log_sum_exp);
  }
}

void SelfAttention::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                            TensorView y) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  qkv_.forward(shape.as_rows(x), Activation::none, {}, saved.qkv.reshape({n, shape.qkv_columns()}));
  normalise(shape, saved.qkv, saved.queries, saved.keys);
  rotate(shape, saved.qkv, Rotation::forward);
  if (!y && !saved.heads_out) return;
  const TensorView heads_out = saved.heads_out ? saved.heads_out : shape.allocate(context_.workspace, columns);
  attend(shape, dropout, saved.qkv, heads_out,
         saved.log_sum_exp ? saved.log_sum_exp : shape.allocate_log_sum_exp(context_.workspace));
  if (y) projection_.forward(heads_out.reshape({n, columns}), shape.as_rows(y));
}

void SelfAttention::backward_input(const LayerShape& shape, const DropoutPlan& dropout, const Saved& saved,
                                   Gradients& gradients, TensorView dx, parallel::WeightGradient weights) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  {
    const ArenaScope scope(context_.workspace);
    TensorView log_sum_exp = saved.log_sum_exp;
    if (saved.heads_out) {
      gradients.heads_out = saved.heads_out;
    } else {
      log_sum_exp = shape.allocate_log_sum_exp(context_.workspace);
      attend(shape, dropout, saved.qkv, gradients.heads_out, log_sum_exp);
    }
    const TensorView dheads = shape.allocate(context_.workspace, columns);
    const TensorView row_dot = shape.allocate_log_sum_exp(context_.workspace);
    projection_.backward_input(shape.as_rows(gradients.output), gradients.heads_out.reshape({n, columns}),
                               Activation::none, {}, dheads.reshape({n, columns}), parallel::WeightGradient::now);
    const ConstTensorView qkv = saved.qkv;
    const AttentionProblem whole = problem(shape, shape.s, dropout.at(layer_, DropoutSite::attention_scores));
    const ConstHeads q = qkv_heads(qkv, shape, 0), k = qkv_heads(qkv, shape, 1), v = qkv_heads(qkv, shape, 2);
    const ConstHeads dout = heads_of(ConstTensorView(dheads), shape);
    const ConstHeads out = heads_of(ConstTensorView(gradients.heads_out), shape);
    const Heads dq = qkv_heads(gradients.qkv, shape, 0), dk = qkv_heads(gradients.qkv, shape, 1);
    const Heads dv = qkv_heads(gradients.qkv, shape, 2);
    if (context_.context_group != nullptr) {
      ring().backward(whole, dout, q, k, v, out, log_sum_exp, row_dot, dq, dk, dv);
    } else {
      context_.backend.attention().attention_backward(context_.stream(), whole, dout, q, k, v, out, log_sum_exp,
                                                      row_dot, dq, dk, dv);
    }
  }
  rotate(shape, gradients.qkv, Rotation::backward);
  if (query_norm_) {
    query_norm_->backward(heads_shape(shape, 0), qkv_heads(gradients.qkv, shape, 0), saved.queries);
    key_norm_->backward(heads_shape(shape, 1), qkv_heads(gradients.qkv, shape, 1), saved.keys);
  }
  qkv_.backward_input(gradients.qkv.reshape({n, shape.qkv_columns()}), shape.as_rows(saved.input), shape.as_rows(dx),
                      weights);
}

void SelfAttention::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  qkv_.backward_weight(gradients.qkv.reshape({shape.rows(), shape.qkv_columns()}), shape.as_rows(saved.input));
}

void SelfAttention::keep_for_weights(const Saved& saved, Gradients& gradients) const {
  context_.backend.elementwise().convert(context_.stream(), gradients.qkv, saved.qkv);
  gradients.qkv = saved.qkv;
}

void SelfAttention::forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts,
                                   const KeyValueCache& cache, TensorView y) const {
  const std::int64_t n = shape.rows();
  const std::int64_t columns = shape.attention_columns();
  const ArenaScope scope(context_.workspace);
  const TensorView qkv = context_.workspace.allocate(shape.dtype, {n, shape.qkv_columns()});
  const TensorView heads_out = context_.workspace.allocate(shape.dtype, {n, columns});
  const TensorView log_sum_exp = shape.allocate_log_sum_exp(context_.workspace);
  qkv_.forward(shape.as_rows(x), Activation::none, {}, qkv);
  if (query_norm_) {
    normalise(shape, qkv, query_norm_->make_saved(shape, shape.a_local, context_.workspace),
              key_norm_->make_saved(shape, shape.kv_local, context_.workspace));
  }
  rotate(shape, qkv, Rotation::forward);
  AttentionKernels& kernels = context_.backend.attention();
  const ConstHeads fresh = qkv_heads(qkv, shape, 1);
  for (std::int64_t i = 0; i < shape.b; ++i) {
    // In both tensors a position's values follow its keys: one copy takes both.
    kernels.copy_heads(context_.stream(), {shape.s, 1, 2 * shape.kv_local, shape.d}, from_sample(fresh, i),
                       cache.keys(texts.first + i, texts.lengths[static_cast<std::size_t>(i)]));
  }
  AttentionProblem newest = problem(shape, *std::ranges::max_element(texts.lengths) + shape.s, {});
  if (shape.lengths != nullptr) {
    // Each text has one query, at its own position. It attends to all keys of its text, or to those in the window,
    // which first_visible delimits.
    newest.causal = false;
    newest.first_query = 0;
    newest.window = -1;
    if (window_ < 0) newest.first_visible = nullptr;
  }
  kernels.attention(context_.stream(), newest, qkv_heads(qkv, shape, 0), cache.keys(texts.first),
                    cache.values(texts.first), heads_of(heads_out, shape), log_sum_exp);
  projection_.forward(heads_out, shape.as_rows(y));
}

}  // namespace trireme::model
