#include "src/model/blocks/attention.hpp"

#include <algorithm>
#include <utility>

#include "src/model/blocks/head_layout.hpp"

namespace trireme::model {

using Gathering = parallel::TensorContext::Gathering;

namespace {

template <class View>
HeadsOf<View> heads_of(View tensor, const LayerShape& shape) {
  return heads_at(tensor, shape, 0, shape.attention_columns(), shape.d);
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
  adapt(qkv, parameters, first, config);
  if (!grouped) return qkv;
  qkv.add(parameters.at(prefix + ".kv.weight"), parameters.find(prefix + ".kv.bias"));
  adapt(qkv, parameters, prefix + ".kv", config);
  return qkv;
}

}  // namespace

void SelfAttention::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  const std::int64_t a = config.heads, d = config.head_dim(), h = config.hidden;
  if (config.latent.used) {
    LatentHeads::declare(list, config, prefix);
  } else if (config.kv_heads() == a) {
    list.column_parallel(prefix + ".qkv", config.has_qkv_bias(), {3, a, d, h}, 1);
  } else {
    list.column_parallel(prefix + ".q", config.has_qkv_bias(), {a, d, h}, 0);
    list.column_parallel(prefix + ".kv", config.has_qkv_bias(), {2, config.kv_heads(), d, h}, 1);
  }
  if (config.qk_norm && !config.latent.used) {
    HeadNorm::declare(list, config, prefix + ".q_ln", a);
    HeadNorm::declare(list, config, prefix + ".k_ln", config.kv_heads());
  }
  list.row_parallel(prefix + ".proj", config.linear_bias, h, config.value_columns());
}

SelfAttention::SelfAttention(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                             const std::string& prefix, const ModelConfig& config, int layer, std::int64_t first_head)
    : context_(context),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      rotary_(config.rotary_of(config.kind_of(layer))),
      scale_(config.score_scale()),
      soft_cap_(config.attention_soft_cap),
      window_(config.window.of(config.kind_of(layer))),
      alibi_heads_(config.position_embedding == PositionEmbedding::alibi ? config.heads : 0),
      alibi_shift_(config.scaled_alibi ? std::log2(static_cast<double>(config.head_dim())) / 2 : 0),
      layer_(layer),
      first_head_(first_head) {
  adapt(projection_, parameters, prefix + ".proj", config);
  if (config.latent.used) {
    latent_.emplace(context, parameters, prefix, config, rotary_);
    return;
  }
  qkv_.emplace(make_qkv(context, parameters, prefix, config));
  if (!config.qk_norm) return;
  query_norm_.emplace(context, parameters, prefix + ".q_ln", config);
  key_norm_.emplace(context, parameters, prefix + ".k_ln", config);
}

SelfAttention::Saved SelfAttention::make_saved(const LayerShape& shape, bool selective, Arena& arena) const {
  Saved saved;
  saved.qkv = shape.allocate(arena, shape.qkv_columns());
  if (latent_) saved.latent = latent_->make_saved(shape, arena);
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
  if (latent_) gradients.latent = latent_->make_gradients(shape, arena);
  if (selective) gradients.heads_out = shape.allocate(arena, shape.attention_columns());
  return gradients;
}

void SelfAttention::compute_qkv(const LayerShape& shape, Gathering& x, Saved& saved) const {
  saved.input = x.own();
  if (latent_) return latent_->forward(shape, x.own(), saved.latent, saved.qkv);
  const TensorView qkv = saved.qkv.reshape({shape.rows(), shape.qkv_columns()});
  for (int i = 0; i < shape.row_chunks; ++i) {
    const parallel::RowChunk chunk{i, shape.row_chunks};
    qkv_->multiply(chunk, x.rows(chunk), Activation::none, {}, qkv);
  }
  if (query_norm_) {
    query_norm_->forward(heads_shape(shape, 0), qkv_heads(saved.qkv, shape, 0), saved.queries);
    key_norm_->forward(heads_shape(shape, 1), qkv_heads(saved.qkv, shape, 1), saved.keys);
  }
  rotate(shape, saved.qkv, Rotation::forward);
}

TensorView SelfAttention::without_padding(const LayerShape& shape, TensorView heads) const {
  const std::int64_t n = shape.rows(), columns = shape.value_columns(), v = shape.value_dim();
  if (v == shape.d) return heads.reshape({n, columns});
  const TensorView values = shape.allocate_rows(context_.workspace, columns);
  context_.backend.attention().copy_heads(context_.stream(), {shape.s, shape.b, shape.a_local, v},
                                          heads_of(heads, shape), heads_at(values, shape, 0, columns, v));
  return values;
}

TensorView SelfAttention::with_padding(const LayerShape& shape, TensorView values) const {
  const std::int64_t columns = shape.value_columns(), v = shape.value_dim();
  if (v == shape.d) return values;
  const TensorView heads = shape.allocate_rows(context_.workspace, shape.attention_columns());
  context_.backend.elementwise().fill(context_.stream(), 0, heads);
  context_.backend.attention().copy_heads(context_.stream(), {shape.s, shape.b, shape.a_local, v},
                                          heads_at(values, shape, 0, columns, v), heads_of(heads, shape));
  return heads;
}

void SelfAttention::rotate(const LayerShape& shape, TensorView qkv, Rotation rotation) const {
  if (rotary_.channels == 0) return;
  const auto rotate_heads = [&](int index, std::int64_t heads) {
    context_.backend.rotary().rotate(
        context_.stream(), rotary_,
        {qkv_heads(qkv, shape, index), shape.s, shape.b, heads, shape.positions, shape.position_ids}, rotation);
  };
  if (!shape.queries_first()) return rotate_heads(0, 2 * shape.a_local);  // each row's keys follow its queries
  rotate_heads(0, shape.a_local);
  rotate_heads(1, shape.kv_local);
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
  problem.alibi_shift = alibi_shift_;
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

TensorView SelfAttention::forward_heads(const LayerShape& shape, Gathering& x, const DropoutPlan& dropout, Saved& saved,
                                        bool projected) const {
  compute_qkv(shape, x, saved);
  if (!projected && !saved.heads_out) return {};
  const TensorView heads_out =
      saved.heads_out ? saved.heads_out : shape.allocate(context_.workspace, shape.attention_columns());
  attend(shape, dropout, saved.qkv, heads_out,
         saved.log_sum_exp ? saved.log_sum_exp : shape.allocate_log_sum_exp(context_.workspace));
  return projected ? without_padding(shape, heads_out) : TensorView();
}

void SelfAttention::backward_heads(const LayerShape& shape, Gathering& doutput, const DropoutPlan& dropout,
                                   const Saved& saved, Gradients& gradients,
                                   const std::function<void()>& arrived) const {
  const std::optional<ArenaScope> scope = context_.operand_scope();
  TensorView log_sum_exp = saved.log_sum_exp;
  if (saved.heads_out) {
    gradients.heads_out = saved.heads_out;
  } else {
    log_sum_exp = shape.allocate_log_sum_exp(context_.workspace);
    attend(shape, dropout, saved.qkv, gradients.heads_out, log_sum_exp);
  }
  const TensorView dvalues = shape.allocate_rows(context_.workspace, shape.value_columns());
  const TensorView row_dot = shape.allocate_log_sum_exp(context_.workspace);
  Fp8Copy copy;
  for (int i = 0; i < shape.row_chunks; ++i) {
    const parallel::RowChunk chunk{i, shape.row_chunks};
    const ConstTensorView rows = doutput.rows(chunk);
    copy = projection_.gradient_copy(rows);
    projection_.backward_input(rows, Activation::none, {}, chunk.of(dvalues), &copy);
  }
  arrived();
  if (projection_.trains()) {
    projection_.backward_weight(doutput.all(), without_padding(shape, gradients.heads_out), &copy);
  }
  const ConstTensorView qkv = saved.qkv;
  const AttentionProblem whole = problem(shape, shape.s, dropout.at(layer_, DropoutSite::attention_scores));
  const ConstHeads q = qkv_heads(qkv, shape, 0), k = qkv_heads(qkv, shape, 1), v = qkv_heads(qkv, shape, 2);
  const ConstHeads dout = heads_of(ConstTensorView(with_padding(shape, dvalues)), shape);
  const ConstHeads out = heads_of(ConstTensorView(gradients.heads_out), shape);
  const Heads dq = qkv_heads(gradients.qkv, shape, 0), dk = qkv_heads(gradients.qkv, shape, 1);
  const Heads dv = qkv_heads(gradients.qkv, shape, 2);
  if (context_.context_group != nullptr) {
    ring().backward(whole, dout, q, k, v, out, log_sum_exp, row_dot, dq, dk, dv);
  } else {
    context_.backend.attention().attention_backward(context_.stream(), whole, dout, q, k, v, out, log_sum_exp, row_dot,
                                                    dq, dk, dv);
  }
  if (latent_) return;
  rotate(shape, gradients.qkv, Rotation::backward);
  if (!query_norm_) return;
  query_norm_->backward(heads_shape(shape, 0), qkv_heads(gradients.qkv, shape, 0), saved.queries);
  key_norm_->backward(heads_shape(shape, 1), qkv_heads(gradients.qkv, shape, 1), saved.keys);
}

parallel::ChunkWorks SelfAttention::backward_qkv(const LayerShape& shape, const Saved& saved,
                                                 const Gradients& gradients, TensorView dx,
                                                 parallel::WeightGradient weights, TensorView term,
                                                 Gathering* input) const {
  if (latent_) {
    latent_->backward_input(shape, saved.input, saved.latent, gradients.qkv, gradients.latent, shape.as_rows(dx),
                            weights);
    return {};
  }
  return qkv_->backward_input(gradients.qkv.reshape({shape.rows(), shape.qkv_columns()}), saved.input,
                              shape.as_rows(dx), weights, term, input);
}

void SelfAttention::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  if (latent_) return latent_->backward_weight(shape, saved.input, saved.latent, gradients.qkv, gradients.latent);
  qkv_->backward_weight(gradients.qkv.reshape({shape.rows(), shape.qkv_columns()}), saved.input);
}

void SelfAttention::keep_for_weights(const LayerShape& shape, const Saved& saved, Gradients& gradients) const {
  context_.backend.elementwise().convert(context_.stream(), gradients.qkv, saved.qkv);
  gradients.qkv = saved.qkv;
  if (latent_) latent_->keep_for_weights(shape, saved.latent, saved.qkv, gradients.latent);
}

void SelfAttention::forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts,
                                   const KeyValueCache& cache, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  Saved saved = make_saved(shape, false, context_.workspace);
  Gathering rows = context_.gather(shape.as_rows(x));
  compute_qkv(shape, rows, saved);
  const TensorView qkv = saved.qkv;
  AttentionKernels& kernels = context_.backend.attention();
  // In both tensors a position's values follow its keys: one copy takes both, of all texts.
  const bool is_step = shape.lengths != nullptr;
  kernels.copy_heads(context_.stream(),
                     {shape.s, shape.b, 2 * shape.kv_local, shape.d, is_step ? shape.position_ids : nullptr},
                     qkv_heads(qkv, shape, 1), cache.keys(texts.first, is_step ? 0 : texts.lengths.front()));
  AttentionProblem newest = problem(shape, *std::ranges::max_element(texts.lengths) + shape.s, {});
  if (is_step) {
    // Each text has one query, at its own position. It attends to all keys of its text, or to those in the window,
    // which first_visible delimits.
    newest.causal = false;
    newest.first_query = 0;
    newest.window = -1;
    if (window_ < 0) newest.first_visible = nullptr;
  }
  kernels.attention(context_.stream(), newest, qkv_heads(qkv, shape, 0), cache.keys(texts.first),
                    cache.values(texts.first), heads_of(saved.heads_out, shape), saved.log_sum_exp);
  projection_.forward(without_padding(shape, saved.heads_out), shape.as_rows(y));
}

}  // namespace trireme::model
