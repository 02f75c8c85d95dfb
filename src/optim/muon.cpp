#include "src/optim/muon.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {
namespace {

using parallel::Parameter;

/// Matrices [count, rows, columns] of which a parameter consists: the first of four dimensions counts them. Rank 0 if
/// it is none.
Shape matrices_of(const Parameter& p, bool split) {
  if (!parallel::is_hidden_matrix(p)) return {};
  const std::int64_t columns = p.shape.back();
  const std::int64_t count = split && p.shape.rank() == 4 ? p.shape[0] : 1;
  return {count, p.shape.numel() / columns / count, columns};
}

double scale_of(MuonScale scale, const Shape& matrices) {
  const auto rows = static_cast<double>(matrices[1]), columns = static_cast<double>(matrices[2]);
  if (scale == MuonScale::spectral) return std::sqrt(std::max(rows, columns));
  return std::sqrt(scale == MuonScale::unit_rms_norm ? rows / columns : std::max(1.0, rows / columns));
}

}  // namespace

Muon::Muon(Backend& backend, parallel::ParameterBuffer& parameters, std::vector<parallel::GradientGroup> groups,
           double weight_decay, const MuonOptions& options, const AdamWOptions& adamw)
    : Optimizer(backend, parameters, weight_decay, moment_names, {}, parallel::is_hidden_matrix),
      options_(options),
      adamw_(adamw),
      dtype_(NewtonSchulz::type_of(backend, parameters.values().dtype(), options.newton_schulz.products)),
      matrices_(backend, parameters, std::move(groups), dtype_,
                [&](const Parameter& p) { return matrices_of(p, options.split_qkv); }),
      newton_schulz_(backend, dtype_, matrices_.batches(), options.newton_schulz) {
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

void Muon::update_matrices(const Update& update) {
  Stream& stream = backend().compute_stream();
  OptimizerKernels& kernels = backend().optimizer();
  const double share = (1 - options_.momentum) * update.gradient_scale;
  const auto fill = [&](std::size_t i, TensorView piece) {
    const Arrays own = arrays_of(i);
    const TensorView momentum = own.moments[0];
    kernels.blend(stream, share, own.gradients, options_.momentum, momentum, options_.nesterov ? TensorView() : piece);
    // The gradient is needed no more.
    if (options_.nesterov) kernels.blend(stream, options_.momentum, momentum, share, own.gradients, piece);
  };
  const auto apply = [&](std::size_t i, TensorView piece) {
    const Arrays own = arrays_of(i);
    const Parameter& p = parameters().parameters()[i];
    const UpdateRates& rates = update.rates[rates_of(p)];
    const double scale = scale_of(options_.scale, matrices_of(p, options_.split_qkv)) * options_.extra_scale;
    kernels.blend(stream, -rates.learning_rate * scale, piece, 1 - rates.learning_rate * rates.weight_decay,
                  own.masters, own.rounded);
  };
  matrices_.transform(
      fill, [&](TensorView batch) { newton_schulz_(batch); }, apply);
}

}  // namespace trireme::optim
