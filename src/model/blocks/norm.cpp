#include "src/model/blocks/norm.hpp"

namespace trireme::model {

using parallel::ParameterRole;

void Norm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t width,
                   bool is_partial) {
  const auto add = [&](const char* suffix, ParameterRole role) {
    list.replicated(prefix + suffix, role, {width}).gradient_is_partial = is_partial;
  };
  add(".weight", config.norm_1p ? ParameterRole::centred_norm_weight : ParameterRole::norm_weight);
  if (config.normalization == Normalization::layer_norm) add(".bias", ParameterRole::norm_bias);
}

Norm::Norm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
           const std::string& prefix, const ModelConfig& config)
    : context_(context),
      has_mean_(config.normalization == Normalization::layer_norm),
      epsilon_(config.norm_epsilon),
      weight_(parameters.at(prefix + ".weight").value, config.norm_1p ? 1 : 0),
      bias_(value_of(parameters.find(prefix + ".bias"))),
      weight_gradient_(parameters.at(prefix + ".weight").gradient),
      bias_gradient_(gradient_of(parameters.find(prefix + ".bias"))) {}

NormStatistics Norm::make_statistics(std::int64_t rows, DType dtype, Arena& arena) const {
  const DType type = accumulation_type(dtype);
  const TensorView mean = has_mean_ ? arena.allocate(type, {rows}) : TensorView();
  return {mean, arena.allocate(type, {rows})};
}

void Norm::forward(ConstTensorView x, TensorView y, const NormStatistics& statistics) const {
  context_.backend.norm().normalise(context_.stream(), x, weight_, bias_, epsilon_, y, statistics);
}

void Norm::forward_sum(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const Dropout& dropout,
                       TensorView sum, TensorView y, const NormStatistics& statistics) const {
  context_.backend.norm().bias_dropout_add_norm(context_.stream(), x, bias, residual, dropout, weight_, bias_, epsilon_,
                                                sum, y, statistics);
}

void Norm::backward(ConstTensorView dy, ConstTensorView x, const NormStatistics& statistics, ConstTensorView dresidual,
                    TensorView dx) const {
  const ArenaScope scope(context_.workspace);
  // The kernel always adds up these gradients. Those of frozen weights are not read.
  const auto sum_of = [&](TensorView gradient, ConstTensorView value) {
    if (gradient || !value) return gradient;
    return context_.workspace.allocate(accumulation_type(value.dtype()), value.shape());
  };
  context_.backend.norm().normalise_backward(context_.stream(), dy, x, weight_, statistics, dresidual, dx,
                                             sum_of(weight_gradient_, weight_.values), sum_of(bias_gradient_, bias_));
}

namespace {

/// Contiguous heads [positions, batch, heads, d].
Heads packed(TensorView tensor, const HeadsShape& shape) {
  const std::int64_t row = shape.heads * shape.head_dim;
  return {tensor, shape.batch * row, row, shape.head_dim};
}
bool is_packed(const Heads& x, const HeadsShape& shape) {
  const std::int64_t row = shape.heads * shape.head_dim;
  return x.position_stride == shape.batch * row && x.sample_stride == row && x.head_stride == shape.head_dim;
}
Shape matrix_shape(const HeadsShape& shape) { return {shape.positions * shape.batch * shape.heads, shape.head_dim}; }

/// The heads of a position as one.
HeadsShape joined(const HeadsShape& shape) { return {shape.positions, shape.batch, 1, shape.heads * shape.head_dim}; }

}  // namespace

void HeadNorm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t heads) {
  const bool across = config.qk_norm_across_heads;
  Norm::declare(list, config, prefix, (across ? heads : 1) * config.head_dim(),
                !across && list.shard().tensor_size > 1);
}

HeadNorm::Saved HeadNorm::make_saved(const LayerShape& shape, std::int64_t heads, Arena& arena) const {
  const std::int64_t rows = shape.rows() * (across_heads_ ? 1 : heads);
  return {shape.allocate(arena, heads * shape.d), norm_.make_statistics(rows, shape.dtype, arena)};
}

template <class Compute>
void HeadNorm::as_matrix(const HeadsShape& shape, const Heads& x, bool reads, const Compute& compute) const {
  AttentionKernels& kernels = context_.backend.attention();
  const DType dtype = x.data.dtype();
  if (is_packed(x, shape)) return compute(TensorView(x.data.data(), dtype, matrix_shape(shape)));
  const ArenaScope scope(context_.workspace);
  const TensorView copy = context_.workspace.allocate(dtype, matrix_shape(shape));
  if (reads) kernels.copy_heads(context_.stream(), shape, x, packed(copy, shape));
  compute(copy);
  kernels.copy_heads(context_.stream(), shape, packed(copy, shape), x);
}

TensorView HeadNorm::gather(const HeadsShape& shape, ConstTensorView own) const {
  Stream& stream = context_.stream();
  const std::int64_t ranks = context_.tensor_group.size(), rows = shape.positions * shape.batch, w = shape.head_dim;
  const TensorView all = context_.workspace.allocate(own.dtype(), {rows, ranks * w});
  const ArenaScope scope(context_.workspace);
  const TensorView parts = context_.workspace.allocate(own.dtype(), {ranks, rows, w});
  context_.tensor_group.all_gather(stream, own, parts).wait(stream);
  const HeadsShape by_rank{shape.positions, shape.batch, ranks, w};
  context_.backend.attention().copy_heads(stream, by_rank, Heads{parts, shape.batch * w, w, rows * w},
                                          packed(all, by_rank));
  return all;
}

void HeadNorm::take_own(const HeadsShape& shape, TensorView rows, const Heads& x) const {
  const std::int64_t w = shape.head_dim, row = context_.tensor_group.size() * w;
  const auto skip = static_cast<std::int64_t>(size_of(rows.dtype())) * context_.tensor_group.rank() * w;
  const TensorView own(rows.data() + skip, rows.dtype(), rows.shape());
  context_.backend.attention().copy_heads(context_.stream(), shape, Heads{own, shape.batch * row, row, w}, x);
}

void HeadNorm::forward(const HeadsShape& heads, const Heads& x, const Saved& saved) const {
  const HeadsShape shape = across_heads_ ? joined(heads) : heads;
  const Heads joined_x{x.data, x.position_stride, x.sample_stride, shape.head_dim};
  context_.backend.attention().copy_heads(context_.stream(), shape, joined_x, packed(saved.heads, shape));
  if (is_gathered()) {
    const ArenaScope scope(context_.workspace);
    const TensorView all = gather(shape, saved.heads);
    const TensorView normed = context_.workspace.allocate(all.dtype(), all.shape());
    norm_.forward(all, normed, saved.statistics);
    return take_own(shape, normed, joined_x);
  }
  as_matrix(shape, joined_x, false, [&](TensorView normed) {
    norm_.forward(saved.heads.reshape(matrix_shape(shape)), normed, saved.statistics);
  });
}

void HeadNorm::backward(const HeadsShape& heads, const Heads& dx, const Saved& saved) const {
  const HeadsShape shape = across_heads_ ? joined(heads) : heads;
  const Heads joined_dx{dx.data, dx.position_stride, dx.sample_stride, shape.head_dim};
  if (is_gathered()) {
    const ArenaScope scope(context_.workspace);
    const TensorView own = context_.workspace.allocate(dx.data.dtype(), matrix_shape(shape));
    context_.backend.attention().copy_heads(context_.stream(), shape, joined_dx, packed(own, shape));
    const TensorView all = gather(shape, saved.heads), gradient = gather(shape, own);
    norm_.backward(gradient, all, saved.statistics, {}, gradient);
    return take_own(shape, gradient, joined_dx);
  }
  as_matrix(shape, joined_dx, true, [&](TensorView gradient) {
    norm_.backward(gradient, saved.heads.reshape(matrix_shape(shape)), saved.statistics, {}, gradient);
  });
}

}  // namespace trireme::model
