#pragma once

#include "src/backend/kernels/attention.hpp"
#include "src/model/blocks/layer_shape.hpp"

namespace trireme::model {

/// Heads of size `head_dim` at `offset` elements into `tensor`, with `row` elements for each position and sample.
template <class View>
HeadsOf<View> heads_at(View tensor, const LayerShape& shape, std::int64_t offset, std::int64_t row,
                       std::int64_t head_dim) {
  const auto skip = static_cast<std::int64_t>(size_of(shape.dtype)) * offset;
  return {View(tensor.data() + skip, tensor.dtype(), tensor.shape()), shape.b * row, row, head_dim};
}
/// Q, K or V (`index` 0, 1, 2), from `channel` of each head on, within SelfAttention::Saved::qkv.
template <class View>
HeadsOf<View> qkv_heads(View qkv, const LayerShape& shape, int index, std::int64_t channel = 0) {
  const std::int64_t q = shape.attention_columns(), kv = shape.kv_columns();
  if (!shape.queries_first()) return heads_at(qkv, shape, index * q + channel, 3 * q, shape.d);
  if (index == 0) return heads_at(qkv, shape, channel, q, shape.d);
  return heads_at(qkv, shape, shape.rows() * q + (index - 1) * kv + channel, 2 * kv, shape.d);
}

}  // namespace trireme::model
