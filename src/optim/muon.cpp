#include "src/optim/muon.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {
namespace {

using parallel::Parameter;

/// Matrices [rows, columns] of which a parameter consists: the first of four dimensions counts them.
Shape matrix_of(const Parameter& p, bool split) {
  const std::int64_t columns = p.shape.back();
  const std::int64_t count = split && p.shape.rank() == 4 ? p.shape[0] : 1;
  return {p.shape.numel() / columns / count, columns};
}

std::int64_t max_side(const parallel::ParameterBuffer& parameters, bool split) {
  std::int64_t side = 1;
  for (const Parameter& p : parameters.parameters()) {
    if (!parallel::is_hidden_matrix(p)) continue;
    const Shape shape = matrix_of(p, split);
    side = std::max(side, std::min(shape[0], shape[1]));
  }
  return side;
}

double scale_of(MuonScale scale, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  if (scale == MuonScale::spectral) return std::sqrt(std::max(rows, columns));
  return std::sqrt(scale == MuonScale::unit_rms_norm ? rows / columns : std::max(1.0, rows / columns));
}

}  // namespace

Muon::Muon(Backend& backend, parallel::ParameterBuffer& parameters, std::vector<parallel::GradientGroup> groups,
           double weight_decay, const MuonOptions& options, const AdamWOptions& adamw)
    : Optimizer(backend, parameters, weight_decay, moment_names, {}, parallel::is_hidden_matrix),
      options_(options),
      adamw_(adamw),
      matrices_(backend, parameters, std::move(groups), parallel::is_hidden_matrix),
      newton_schulz_(backend, accumulation_type(parameters.values().dtype()),
                     std::max<std::int64_t>(matrices_.max_elements(), 1), max_side(parameters, options.split_qkv),
                     options.newton_schulz) {
  validate(adamw);
  TRIREME_CHECK(adamw.exp_avg_dtype == DType::fp32 && adamw.exp_avg_sq_dtype == DType::fp32, ConfigError,
                "<exp_avg_dtype> and <exp_avg_sq_dtype> bf16 need <optimizer> adam: Muon's moments are in fp32");
  TRIREME_CHECK(options.momentum >= 0 && options.momentum < 1, ConfigError,
                "<muon_momentum> {} must be from 0 to less than 1", options.momentum);
  TRIREME_CHECK(options.extra_scale > 0 && std::isfinite(options.extra_scale), ConfigError,
                "<muon_extra_scale_factor> {} must be above 0", options.extra_scale);
}

void Muon::update_ranges(const Update& update, const UpdateRanges& ranges, const Arrays& arrays) {
  AdamW::update(backend(), adamw_, update, ranges, arrays);
}

void Muon::update_matrices(const Update& update, std::size_t bucket) {
  Stream& stream = backend().compute_stream();
  ElementwiseKernels& elementwise = backend().elementwise();
  const double share = (1 - options_.momentum) * update.gradient_scale;
  // Momentum by the kernel of SGD, whose weights are the piece here: u = u - rate m.
  const SgdStep momentum{.rates = {{{.learning_rate = options_.nesterov ? -options_.momentum : -1}}},
                         .momentum = options_.momentum,
                         .gradient_scale = share};
  const auto fill = [&](std::size_t i, TensorView piece) {
    const Arrays own = arrays_of(i);
    elementwise.fill(stream, 0, piece);
    if (options_.nesterov) {
      elementwise.convert(stream, own.gradients, piece);
      elementwise.scale(stream, share, piece);
    }
    backend().optimizer().sgd(stream, momentum, {}, own.gradients, piece, own.moments[0], {});
  };
  const auto orthogonalise = [&](std::size_t i, TensorView whole) {
    const Shape shape = matrix_of(parameters().parameters()[i], options_.split_qkv);
    for (std::int64_t begin = 0; begin < whole.numel(); begin += shape.numel()) {
      newton_schulz_(whole.flat(begin, shape.numel()).reshape(shape));
    }
  };
  const auto apply = [&](std::size_t i, TensorView piece) {
    const Arrays own = arrays_of(i);
    const Parameter& p = parameters().parameters()[i];
    const UpdateRates& rates = update.rates[rates_of(p)];
    const double scale = scale_of(options_.scale, matrix_of(p, options_.split_qkv)) * options_.extra_scale;
    elementwise.scale(stream, 1 - rates.learning_rate * rates.weight_decay, own.masters);
    elementwise.scale(stream, -rates.learning_rate * scale, piece);
    elementwise.add(stream, piece, own.masters);
    if (own.rounded) elementwise.convert(stream, own.masters, own.rounded);
  };
  matrices_.transform(bucket, fill, orthogonalise, apply);
}

}  // namespace trireme::optim
