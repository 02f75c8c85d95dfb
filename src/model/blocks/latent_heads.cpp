#include "src/model/blocks/latent_heads.hpp"

#include "src/model/blocks/head_layout.hpp"

namespace trireme::model {

using parallel::WeightGradient;

void ReplicatedLinear::forward(ConstTensorView x, TensorView y) const {
  const RepeatedProducts repeated(context_.backend.gemm(), repeats_rows());
  context_.backend.gemm().linear(context_.stream(), x, weight_, {}, Activation::none, {}, y);
  if (adapter_) adapter_->forward(x, y);
}

void ReplicatedLinear::backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx, bool adds,
                                      WeightGradient weights) const {
  const ArenaScope scope(context_.workspace);
  const TensorView product = adds ? context_.workspace.allocate(dx.dtype(), dx.shape()) : dx;
  const RepeatedProducts repeated(context_.backend.gemm(), repeats_rows());
  context_.backend.gemm().linear_backward_input(context_.stream(), dy, weight_, Activation::none, {}, product);
  if (adapter_) adapter_->backward_input(dy, product);
  if (adds) context_.backend.elementwise().add(context_.stream(), product, dx);
  if (weights == WeightGradient::now) backward_weight(dy, x);
}

void ReplicatedLinear::backward_weight(ConstTensorView dy, ConstTensorView x) const {
  const RepeatedProducts repeated(context_.backend.gemm(), repeats_rows());
  if (adapter_) adapter_->backward_weight(dy, x);
  if (!weight_gradient_) return;
  context_.backend.gemm().linear_backward_weight(context_.stream(), dy, x, weight_gradient_, {});
}

void LowRankLinear::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix,
                            std::int64_t rank, std::int64_t further, std::int64_t channels) {
  list.replicated_linear(prefix + "_down", rank + further, config.hidden);
  if (config.qk_norm) Norm::declare(list, config, prefix + "_ln", rank);
  list.column_parallel(prefix + "_up", false, {config.heads, channels, rank}, 0);
}

LowRankLinear::LowRankLinear(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                             const std::string& prefix, const ModelConfig& config, std::int64_t rank)
    : rank_(rank),
      down_(context, parameters.at(prefix + "_down.weight"), 0, rank),
      up_(context, parameters.at(prefix + "_up.weight"), nullptr) {
  adapt(down_, parameters, prefix + "_down", config);
  adapt(up_, parameters, prefix + "_up", config);
  if (config.qk_norm) norm_.emplace(context, parameters, prefix + "_ln", config);
}

LowRankLinear::Saved LowRankLinear::make_saved(const LayerShape& shape, Arena& arena) const {
  Saved saved{make_gradient(shape, arena), make_gradient(shape, arena), {}};
  if (norm_) saved.statistics = norm_->make_statistics(shape.local_rows(), shape.dtype, arena);
  return saved;
}

TensorView LowRankLinear::make_gradient(const LayerShape& shape, Arena& arena) const {
  return arena.allocate(shape.dtype, {shape.local_rows(), rank_});
}

void LowRankLinear::forward(ConstTensorView x, const Saved& saved, TensorView y) const {
  down_.forward(x, norm_ ? saved.latent : saved.normed);
  if (norm_) norm_->forward(saved.latent, saved.normed, saved.statistics);
  up_.forward(saved.normed, Activation::none, {}, y);
}

void LowRankLinear::backward_input(ConstTensorView dy, ConstTensorView x, const Saved& saved, TensorView dlatent,
                                   TensorView dx, bool adds, WeightGradient weights) const {
  up_.backward_input(dy, saved.normed, dlatent, weights);
  if (norm_) norm_->backward(dlatent, saved.latent, saved.statistics, {}, dlatent);
  down_.backward_input(dlatent, x, dx, adds, weights);
}

void LowRankLinear::backward_weight(ConstTensorView dy, ConstTensorView x, const Saved& saved,
                                    ConstTensorView dlatent) const {
  up_.backward_weight(dy, saved.normed);
  down_.backward_weight(dlatent, x);
}

void LatentHeads::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  const LatentAttention& latent = config.latent;
  if (latent.query_rank > 0) {
    LowRankLinear::declare(list, config, prefix + ".q", latent.query_rank, 0, config.head_dim());
  } else {
    list.column_parallel(prefix + ".q", false, {config.heads, config.head_dim(), config.hidden}, 0);
  }
  LowRankLinear::declare(list, config, prefix + ".kv", latent.kv_rank, latent.rotary_dim,
                         latent.head_dim + latent.value_dim);
}

LatentHeads::LatentHeads(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                         const std::string& prefix, const ModelConfig& config, const RotaryEmbedding& rotary)
    : context_(context),
      rotary_(rotary),
      plain_(config.latent.head_dim),
      keys_(context, parameters, prefix + ".kv", config, config.latent.kv_rank),
      shared_(context, parameters.at(prefix + ".kv_down.weight"), config.latent.kv_rank, rotary.channels) {
  adapt(shared_, parameters, prefix + ".kv_down", config);
  if (config.latent.query_rank > 0) {
    low_rank_queries_.emplace(context, parameters, prefix + ".q", config, config.latent.query_rank);
  } else {
    queries_.emplace(context, parameters.at(prefix + ".q.weight"), nullptr);
    adapt(*queries_, parameters, prefix + ".q", config);
  }
}

LatentHeads::Saved LatentHeads::make_saved(const LayerShape& shape, Arena& arena) const {
  Saved saved;
  if (low_rank_queries_) saved.queries = low_rank_queries_->make_saved(shape, arena);
  saved.keys = keys_.make_saved(shape, arena);
  saved.shared = arena.allocate(shape.dtype, {shape.local_rows(), rotary_.channels});
  return saved;
}

LatentHeads::Gradients LatentHeads::make_gradients(const LayerShape& shape, Arena& arena) const {
  Gradients gradients;
  if (low_rank_queries_) gradients.queries = low_rank_queries_->make_gradient(shape, arena);
  gradients.keys = keys_.make_gradient(shape, arena);
  gradients.shared = arena.allocate(shape.dtype, {shape.local_rows(), rotary_.channels});
  gradients.expanded = shape.allocate_rows(arena, expanded_columns(shape));
  return gradients;
}

template <class View>
HeadsOf<View> LatentHeads::expanded_heads(const LayerShape& shape, View expanded, std::int64_t channel) const {
  return heads_at(expanded, shape, channel, expanded_columns(shape), plain_ + shape.value_dim());
}

void LatentHeads::rotate_queries(const LayerShape& shape, TensorView qkv, Rotation rotation) const {
  context_.backend.rotary().rotate(
      context_.stream(), rotary_,
      {qkv_heads(qkv, shape, 0, plain_), shape.s, shape.b, shape.a_local, shape.positions, shape.position_ids},
      rotation);
}

void LatentHeads::rotate_shared(const LayerShape& shape, TensorView shared, Rotation rotation) const {
  const int rank = context_.tensor_group.rank();
  shape.for_each_run([&](parallel::RowChunk run) {
    const std::int32_t* const ids =
        shape.position_ids == nullptr ? nullptr : shape.position_ids + shape.first_of(run, rank) * shape.b;
    context_.backend.rotary().rotate(context_.stream(), rotary_,
                                     {heads_at(run.of(shared), shape, 0, rotary_.channels, rotary_.channels),
                                      shape.s_local / run.count, shape.b, 1, shape.residual_positions(run, rank), ids},
                                     rotation);
  });
}

void LatentHeads::forward(const LayerShape& shape, ConstTensorView x, const Saved& saved, TensorView qkv) const {
  Stream& stream = context_.stream();
  AttentionKernels& kernels = context_.backend.attention();
  const ArenaScope scope(context_.workspace);
  if (low_rank_queries_) {
    low_rank_queries_->forward(x, saved.queries, queries_of(shape, qkv));
  } else {
    queries_->forward(x, Activation::none, {}, queries_of(shape, qkv));
  }
  rotate_queries(shape, qkv, Rotation::forward);

  const TensorView expanded = shape.allocate_rows(context_.workspace, expanded_columns(shape));
  keys_.forward(x, saved.keys, expanded);
  shared_.forward(x, saved.shared);
  rotate_shared(shape, saved.shared, Rotation::forward);
  const std::int64_t v = shape.value_dim();
  kernels.copy_heads(stream, part(shape, plain_), expanded_heads(shape, expanded, 0), qkv_heads(qkv, shape, 1));
  kernels.copy_heads(stream, part(shape, v), expanded_heads(shape, expanded, plain_), qkv_heads(qkv, shape, 2));
  // All heads read the same row.
  kernels.copy_heads(stream, part(shape, rotary_.channels),
                     heads_at(context_.gather_now(saved.shared), shape, 0, rotary_.channels, 0),
                     qkv_heads(qkv, shape, 1, plain_));
  if (v == shape.d) return;
  const TensorView zeros = context_.workspace.allocate(shape.dtype, {shape.d - v});
  context_.backend.elementwise().fill(stream, 0, zeros);
  kernels.copy_heads(stream, part(shape, shape.d - v), ConstHeads{zeros}, qkv_heads(qkv, shape, 2, v));
}

void LatentHeads::sum_shared(const LayerShape& shape, ConstTensorView dqkv, TensorView dshared) const {
  Stream& stream = context_.stream();
  ElementwiseKernels& elementwise = context_.backend.elementwise();
  const ArenaScope scope(context_.workspace);
  const std::int64_t r = rotary_.channels, size = shape.rows() * r;
  const TensorView heads = context_.workspace.allocate(accumulation_type(shape.dtype), {shape.a_local, size});
  context_.backend.attention().copy_heads(stream, part(shape, r), qkv_heads(dqkv, shape, 1, plain_),
                                          Heads{heads, shape.b * r, r, size});
  // Adds the last half of the heads to the first, until one is left.
  for (std::int64_t count = shape.a_local; count > 1; count -= count / 2) {
    const std::int64_t half = count / 2;
    elementwise.add(stream, heads.rows(count - half, half), heads.rows(0, half));
  }
  const TensorView term = context_.term_of(dshared);
  elementwise.convert(stream, heads.rows(0, 1), term);
  context_.sum_into(dshared, term).wait(stream);
}

void LatentHeads::backward_input(const LayerShape& shape, ConstTensorView x, const Saved& saved, TensorView dqkv,
                                 const Gradients& gradients, TensorView dx, WeightGradient weights) const {
  Stream& stream = context_.stream();
  AttentionKernels& kernels = context_.backend.attention();
  rotate_queries(shape, dqkv, Rotation::backward);
  if (low_rank_queries_) {
    low_rank_queries_->backward_input(queries_of(shape, dqkv), x, saved.queries, gradients.queries, dx, false, weights);
  } else {
    queries_->backward_input(queries_of(shape, dqkv), x, dx, weights);
  }
  const ConstTensorView d = dqkv;
  kernels.copy_heads(stream, part(shape, plain_), qkv_heads(d, shape, 1), expanded_heads(shape, gradients.expanded, 0));
  kernels.copy_heads(stream, part(shape, shape.value_dim()), qkv_heads(d, shape, 2),
                     expanded_heads(shape, gradients.expanded, plain_));
  keys_.backward_input(gradients.expanded, x, saved.keys, gradients.keys, dx, true, weights);
  sum_shared(shape, dqkv, gradients.shared);
  rotate_shared(shape, gradients.shared, Rotation::backward);
  shared_.backward_input(gradients.shared, x, dx, true, weights);
}

void LatentHeads::backward_weight(const LayerShape& shape, ConstTensorView x, const Saved& saved, ConstTensorView dqkv,
                                  const Gradients& gradients) const {
  if (low_rank_queries_) {
    low_rank_queries_->backward_weight(queries_of(shape, dqkv), x, saved.queries, gradients.queries);
  } else {
    queries_->backward_weight(queries_of(shape, dqkv), x);
  }
  keys_.backward_weight(gradients.expanded, x, saved.keys, gradients.keys);
  shared_.backward_weight(gradients.shared, x);
}

void LatentHeads::keep_for_weights(const LayerShape& shape, const Saved& saved, TensorView qkv,
                                   Gradients& gradients) const {
  const std::int64_t n = shape.rows();
  const TensorView keys_and_values = qkv.flat(n * shape.attention_columns(), n * expanded_columns(shape));
  for (const auto& [gradient, to] : {std::pair{&gradients.queries, saved.queries.latent},
                                     {&gradients.keys, saved.keys.latent},
                                     {&gradients.shared, saved.shared},
                                     {&gradients.expanded, keys_and_values}}) {
    if (!*gradient) continue;
    const TensorView kept = to.reshape(gradient->shape());
    context_.backend.elementwise().convert(context_.stream(), *gradient, kept);
    *gradient = kept;
  }
}

}  // namespace trireme::model
