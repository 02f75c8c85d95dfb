#include "src/model/stage/ahead_prediction.hpp"

#include <string>

#include "src/model/blocks/head_layout.hpp"
#include "src/model/blocks/latent_heads.hpp"

namespace trireme::model {
namespace {

std::string module_prefix(int depth) { return "mtp." + std::to_string(depth); }

StageShard modules_shard(StageShard shard, const ModelConfig& config) {
  shard.chunks.clear();
  for (int depth = 0; depth < config.ahead.depths; ++depth) shard.chunks.push_back({config.layers + depth, 1});
  return shard;
}

/// The pass through depth `index`, whose results are in `streams`.
LayerStack::Pass pass_of(const LayerStack::Pass& pass, std::size_t index, ResidualPair& streams) {
  return {pass.shape, static_cast<int>(index), pass.keeps, pass.last,  pass.dropout,
          pass.arena, pass.host_arena,         streams,    pass.probe, pass.mean_gradient};
}

/// The form of these layers: backward needs them first, so they are kept on the device.
Recomputation kept_on_device(Recomputation recomputation) {
  recomputation.offloaded_layers = 0;
  return recomputation;
}

}  // namespace

using parallel::WeightGradient;

void AheadPrediction::declare(ParameterList& list, const ModelConfig& config) {
  const std::int64_t h = config.hidden;
  for (int depth = 0; depth < config.ahead.depths; ++depth) {
    const std::string prefix = module_prefix(depth);
    Norm::declare(list, config, prefix + ".embedding_ln", h);
    Norm::declare(list, config, prefix + ".hidden_ln", h);
    list.replicated(prefix + ".proj.weight", ParameterList::Role::matrix, {h, 2 * h});
    TransformerLayer::declare(list, config, config.layers + depth);
    Norm::declare(list, config, prefix + ".ln", h);
  }
}

AheadPrediction::AheadPrediction(const parallel::TensorContext& context,
                                 const parallel::VocabularyPartition& vocabulary,
                                 const parallel::ParameterBuffer& parameters, const ModelConfig& config,
                                 const StageShard& shard, const Recomputation& recomputation, std::int64_t loss_chunks,
                                 ActivationStore& activations)
    : context_(context),
      layers_(context, parameters, config, modules_shard(shard, config), kept_on_device(recomputation), hooks_, 0,
              activations),
      tokens_(context, vocabulary, parameters.at(config.tied_output ? token_table_name(config) : "lm_head.weight"),
              nullptr, config.logit_soft_cap, loss_chunks) {
  for (int depth = 0; depth < config.ahead.depths; ++depth) {
    const std::string prefix = module_prefix(depth);
    depths_.push_back({InputEmbedding(context, vocabulary, parameters, config, config.layers + depth),
                       Norm(context, parameters, prefix + ".embedding_ln", config),
                       Norm(context, parameters, prefix + ".hidden_ln", config),
                       Norm(context, parameters, prefix + ".ln", config),
                       ReplicatedLinear(context, parameters.at(prefix + ".proj.weight"), 0, config.hidden)});
  }
}

MicroBatch AheadPrediction::batch_of(const MicroBatch& batch, std::size_t index) const {
  const auto depth = static_cast<std::int64_t>(index);
  const Shape shape = batch.tokens.shape();
  const auto part = [&](ConstTensorView all) {
    return all ? all.flat(depth * shape.numel(), shape.numel()) : ConstTensorView();
  };
  MicroBatch result = batch;
  result.tokens = part(batch.tokens_ahead).reshape(shape);
  result.labels = part(batch.labels_ahead).reshape(shape);
  result.loss_weights = part(batch.ahead_weights);
  result.loss_gradient = part(batch.ahead_loss_gradient);
  result.token_losses = result.rivals = result.logits = {};
  return result;
}

void AheadPrediction::copy_half(const LayerShape& shape, ConstTensorView from, int half, TensorView joined) const {
  const std::int64_t h = shape.h;
  context_.backend.attention().copy_heads(context_.stream(), {shape.s_local, shape.b, 1, h},
                                          heads_at(from, shape, 0, h, h), heads_at(joined, shape, half * h, 2 * h, h));
}

void AheadPrediction::take_half(const LayerShape& shape, ConstTensorView joined, int half, TensorView to) const {
  const std::int64_t h = shape.h;
  context_.backend.attention().copy_heads(context_.stream(), {shape.s_local, shape.b, 1, h},
                                          heads_at(joined, shape, half * h, 2 * h, h), heads_at(to, shape, 0, h, h));
}

AheadPrediction::Saved AheadPrediction::forward(const LayerStack::Pass& pass, const MicroBatch& batch,
                                                const StageMode& mode, ConstTensorView x) {
  const LayerShape& shape = pass.shape;
  Arena& arena = pass.arena;
  Saved saved(depths_.size());
  for (std::size_t i = 0; i < depths_.size(); ++i) {
    const Depth& depth = depths_[i];
    SavedDepth& kept = saved[i];
    const MicroBatch ahead = batch_of(batch, i);
    const auto statistics = [&](const Norm& norm) {
      return norm.make_statistics(shape.local_rows(), shape.dtype, arena);
    };
    kept.embedded = shape.allocate_residual(arena);
    kept.embedding = depth.embedding.forward(shape, ahead, pass.dropout, kept.embedded, arena);
    kept.hidden = x;
    kept.of_embedded = statistics(depth.embedding_norm);
    kept.of_hidden = statistics(depth.hidden_norm);
    kept.joined = arena.allocate(shape.dtype, {shape.local_rows(), 2 * shape.h});
    const ArenaScope scope(context_.workspace);
    const TensorView normed = shape.allocate_residual(context_.workspace);
    depth.embedding_norm.forward(kept.embedded, normed, kept.of_embedded);
    copy_half(shape, normed, 0, kept.joined);
    depth.hidden_norm.forward(x, normed, kept.of_hidden);
    copy_half(shape, normed, 1, kept.joined);

    ResidualPair streams(shape, context_.workspace);
    const LayerStack::Pass layer = pass_of(pass, i, streams);
    const TensorView input = layers_.make_input(layer);
    depth.projection.forward(kept.joined, shape.as_rows(input));
    kept.output = layers_.forward(layer, input, {}, kept.layers);
    const TensorView result = shape.allocate_residual(arena);
    kept.of_output = statistics(depth.norm);
    depth.norm.forward(kept.output, result, kept.of_output);
    kept.tokens = tokens_.forward(ahead, mode_of(mode), shape.as_rows(result), arena);
    x = result;
  }
  return saved;
}

ConstTensorView AheadPrediction::backward(const LayerStack::Pass& pass, const MicroBatch& batch, const StageMode& mode,
                                          Saved& saved) {
  const LayerShape& shape = pass.shape;
  Arena& workspace = context_.workspace;
  const TensorView dx = shape.allocate_residual(workspace);
  for (std::size_t i = depths_.size(); i-- > 0;) {
    const Depth& depth = depths_[i];
    SavedDepth& kept = saved[i];
    const MicroBatch ahead = batch_of(batch, i);
    const ArenaScope scope(workspace);
    const TensorView dy = shape.allocate_residual(workspace);
    tokens_.backward(ahead, mode_of(mode), kept.tokens, shape.as_rows(dy));
    if (i + 1 < depths_.size()) context_.backend.elementwise().add(context_.stream(), dx, dy);
    depth.norm.backward(dy, kept.output, kept.of_output, {}, dy);

    ResidualPair streams(shape, workspace);
    const ConstTensorView dinput =
        layers_.backward(pass_of(pass, i, streams), dy, {}, WeightGradient::now, kept.layers);
    const TensorView djoined = workspace.allocate(shape.dtype, kept.joined.shape());
    depth.projection.backward_input(shape.as_rows(dinput), kept.joined, djoined, false, WeightGradient::now);
    if (depth.embedding.trains()) {
      take_half(shape, djoined, 0, dx);
      depth.embedding_norm.backward(dx, kept.embedded, kept.of_embedded, {}, dx);
      depth.embedding.backward(shape, ahead, pass.dropout, kept.embedding, dx);
    }
    take_half(shape, djoined, 1, dx);
    depth.hidden_norm.backward(dx, kept.hidden, kept.of_hidden, {}, dx);
  }
  return dx;
}

}  // namespace trireme::model
