#include "src/model/stage/gpt_stage.hpp"

namespace trireme::model {

std::vector<KeyValueCache> GptStage::make_caches(std::int64_t capacity, Arena& arena) const {
  std::vector<KeyValueCache> caches;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    caches.push_back({arena.allocate(shape_.dtype, {capacity, 1, 2, shape_.kv_local, shape_.d}), 0});
  }
  return caches;
}

void GptStage::forward_cached(int chunk, std::int64_t positions, std::int64_t first_position, ConstTensorView ids,
                              ConstTensorView input, std::vector<KeyValueCache>& caches, TensorView output) {
  TRIREME_CHECK(!context_.sequence_parallel, ConfigError, "generation runs without --sequence-parallel");
  Stream& stream = context_.stream();
  LayerShape shape = shape_;
  shape.s = shape.s_local = positions;
  shape.positions = {first_position};
  shape.b = 1;
  const bool last = is_last(chunk);
  const ArenaScope scope(context_.workspace);
  const TensorView streams[] = {shape.allocate_residual(context_.workspace),
                                shape.allocate_residual(context_.workspace)};
  const int layers = shard_.chunks[static_cast<std::size_t>(chunk)].layers;
  if (is_first(chunk)) {
    const TensorView x = layers == 0 && !last ? output : streams[1];
    embedding_->forward(ids.reshape({positions}), shape.as_rows(x));
    context_.backend.embedding().add_positions(stream, positions_, shape.positions, {}, x);
    input = x;
  }
  const auto first = static_cast<std::size_t>(first_layer_index(chunk));
  for (int i = 0; i < layers; ++i) {
    const TensorView y = i + 1 == layers && !last ? output : streams[i % 2];
    const std::size_t layer = first + static_cast<std::size_t>(i);
    layers_[layer].forward_cached(shape, input, caches[layer], y);
    input = y;
  }
  if (last) {
    shape.s = shape.s_local = 1;
    const ConstTensorView newest = input.rows(positions - 1, 1);
    const TensorView normed = shape.allocate_residual(context_.workspace);
    context_.backend.norm().normalise(stream, newest, final_norm_->weight, final_norm_->bias, config_.norm_epsilon,
                                      normed, shape.allocate_statistics(context_.workspace));
    head_->forward(shape.as_rows(normed), Activation::none, {}, output);
  }
}

}  // namespace trireme::model
