#include "src/model/layers/head_norm.hpp"

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

HeadNorm::Saved HeadNorm::Saved::allocate(const LayerShape& shape, std::int64_t heads, Arena& arena) {
  return {shape.allocate(arena, heads * shape.d), shape.allocate_statistics(arena, shape.rows() * heads)};
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
  context_.backend.norm().normalise(context_.stream(), saved.heads.reshape(rows), parameters_.weight, parameters_.bias,
                                    epsilon_, normed, saved.statistics);
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
  context_.backend.norm().normalise_backward(context_.stream(), gradient, saved.heads.reshape(rows), parameters_.weight,
                                             saved.statistics, {}, gradient, parameters_.weight_gradient,
                                             parameters_.bias_gradient);
  if (!in_place) kernels.copy_heads(context_.stream(), shape, packed(gradient, shape), dx);
}

}  // namespace trireme::model
