#include "src/model/blocks/head_norm.hpp"

namespace trireme::model {
namespace {

/// Heads that follow one another without gaps: [positions, batch, heads, d].
Heads packed(TensorView tensor, const HeadsShape& shape) {
  const std::int64_t row = shape.heads * shape.head_dim;
  return {tensor, shape.batch * row, row, shape.head_dim};
}
bool is_packed(const Heads& x, const HeadsShape& shape) {
  const std::int64_t row = shape.heads * shape.head_dim;
  return x.position_stride == shape.batch * row && x.sample_stride == row && x.head_stride == shape.head_dim;
}
/// The channels of one head a row.
Shape rows_of_heads(const HeadsShape& shape) { return {shape.positions * shape.batch * shape.heads, shape.head_dim}; }

}  // namespace

void HeadNorm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  Norm::declare(list, config, prefix, config.head_dim(), true);
}

HeadNorm::Saved HeadNorm::make_saved(const LayerShape& shape, std::int64_t heads, Arena& arena) const {
  return {shape.allocate(arena, heads * shape.d), norm_.make_statistics(shape.rows() * heads, shape.dtype, arena)};
}

void HeadNorm::forward(const HeadsShape& shape, const Heads& x, const Saved& saved) const {
  AttentionKernels& kernels = context_.backend.attention();
  const ArenaScope scope(context_.workspace);
  const Shape rows = rows_of_heads(shape);
  const DType dtype = x.data.dtype();
  const bool in_place = is_packed(x, shape);
  const TensorView normed =
      in_place ? TensorView(x.data.data(), dtype, rows) : context_.workspace.allocate(dtype, rows);
  kernels.copy_heads(context_.stream(), shape, x, packed(saved.heads, shape));
  norm_.forward(saved.heads.reshape(rows), normed, saved.statistics);
  if (!in_place) kernels.copy_heads(context_.stream(), shape, packed(normed, shape), x);
}

void HeadNorm::backward(const HeadsShape& shape, const Heads& dx, const Saved& saved) const {
  AttentionKernels& kernels = context_.backend.attention();
  const ArenaScope scope(context_.workspace);
  const Shape rows = rows_of_heads(shape);
  const DType dtype = dx.data.dtype();
  const bool in_place = is_packed(dx, shape);
  const TensorView gradient =
      in_place ? TensorView(dx.data.data(), dtype, rows) : context_.workspace.allocate(dtype, rows);
  if (!in_place) kernels.copy_heads(context_.stream(), shape, dx, packed(gradient, shape));
  norm_.backward(gradient, saved.heads.reshape(rows), saved.statistics, {}, gradient);
  if (!in_place) kernels.copy_heads(context_.stream(), shape, packed(gradient, shape), dx);
}

}  // namespace trireme::model
