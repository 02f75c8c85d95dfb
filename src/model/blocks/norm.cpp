#include "src/model/blocks/norm.hpp"

namespace trireme::model {

using parallel::ParameterRole;

void Norm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t width,
                   bool of_heads) {
  const auto add = [&](const char* suffix, ParameterRole role) {
    parallel::Parameter& parameter = list.replicated(prefix + suffix, role, {width});
    if (of_heads) parameter.gradient_is_partial = list.shard().tensor_size > 1;
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
  context_.backend.norm().normalise_backward(context_.stream(), dy, x, weight_, statistics, dresidual, dx,
                                             weight_gradient_, bias_gradient_);
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

}  // namespace

HeadNorm::Saved HeadNorm::make_saved(const LayerShape& shape, std::int64_t heads, Arena& arena) const {
  return {shape.allocate(arena, heads * shape.d), norm_.make_statistics(shape.rows() * heads, shape.dtype, arena)};
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

void HeadNorm::forward(const HeadsShape& shape, const Heads& x, const Saved& saved) const {
  context_.backend.attention().copy_heads(context_.stream(), shape, x, packed(saved.heads, shape));
  as_matrix(shape, x, false, [&](TensorView normed) {
    norm_.forward(saved.heads.reshape(matrix_shape(shape)), normed, saved.statistics);
  });
}

void HeadNorm::backward(const HeadsShape& shape, const Heads& dx, const Saved& saved) const {
  as_matrix(shape, dx, true, [&](TensorView gradient) {
    norm_.backward(gradient, saved.heads.reshape(matrix_shape(shape)), saved.statistics, {}, gradient);
  });
}

}  // namespace trireme::model
