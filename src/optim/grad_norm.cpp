#include "src/optim/grad_norm.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {
namespace {

/// Calls measure(bucket, begin, count) for the ranges of this rank's shard that count here, and combines the results in
/// `result`, which begins at `start`, over the ranks.
template <class Measure>
double measure_model(Backend& backend, const parallel::ParameterBuffer& parameters, const NormGroups& groups,
                     TensorView result, ReduceOp op, double start, const Measure& measure) {
  Stream& stream = backend.compute_stream();
  backend.elementwise().fill(stream, start, result);
  const auto counts = [&](const parallel::Parameter& p) { return p.counts_here(groups.tensor_rank); };
  for (std::size_t bucket = 0; bucket < parameters.layout().buckets().size(); ++bucket) {
    parameters.for_each_stretch(bucket, counts, [&](bool count_here, std::int64_t begin, std::int64_t count) {
      if (count_here) measure(bucket, begin, count);
    });
  }
  if (parameters.layout().shards() > 1) groups.gradient.all_reduce(stream, result, op).wait(stream);
  groups.model.all_reduce(stream, result, op).wait(stream);
  double value = 0;
  backend.copy_to_host(stream, result, TensorView(&value, {1}));
  stream.synchronize();
  return value;
}

}  // namespace

double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const NormGroups& groups,
                     TensorView sum, int power) {
  const ReduceOp op = power == infinity_norm ? ReduceOp::max : ReduceOp::sum;
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count) {
    const TensorView gradients = parameters.shard_gradients(bucket).flat(begin, count);
    Stream& stream = backend.compute_stream();
    if (power == infinity_norm) {
      backend.reduce().max_abs(stream, gradients, sum);
    } else if (power == 2) {
      backend.reduce().sum_squares(stream, gradients, sum);
    } else {
      backend.reduce().sum_powers(stream, gradients, power, sum);
    }
  };
  const double value = measure_model(backend, parameters, groups, sum, op, 0, measure);
  if (power == infinity_norm) return value;
  return power == 2 ? std::sqrt(value) : std::pow(value, 1.0 / power);
}

double parameter_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const Optimizer& optimizer,
                      const NormGroups& groups, TensorView sum) {
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count) {
    backend.reduce().sum_squares(backend.compute_stream(), optimizer.masters(bucket).flat(begin, count), sum);
  };
  return std::sqrt(measure_model(backend, parameters, groups, sum, ReduceOp::sum, 0, measure));
}

std::int64_t count_zero_gradients(Backend& backend, const parallel::ParameterBuffer& parameters,
                                  const NormGroups& groups, TensorView sum) {
  // Padding inside of the ranges is zero: it is taken off beforehand.
  std::int64_t padding = 0;
  const auto counts = [&](const parallel::Parameter& p) { return p.counts_here(groups.tensor_rank); };
  for (std::size_t bucket = 0; bucket < parameters.layout().buckets().size(); ++bucket) {
    parameters.for_each_stretch(bucket, counts, [&](bool count_here, std::int64_t, std::int64_t count) {
      if (count_here) padding += count;
    });
  }
  for (std::size_t i = 0; i < parameters.parameters().size(); ++i) {
    const parallel::Parameter& p = parameters.parameters()[i];
    if (!counts(p)) continue;
    const parallel::ShardRange own = parameters.shard_range(i);
    padding -= std::clamp<std::int64_t>(p.box.numel() - own.begin, 0, own.count);
  }
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count) {
    backend.reduce().count_zeros(backend.compute_stream(), parameters.shard_gradients(bucket).flat(begin, count), sum);
  };
  return static_cast<std::int64_t>(
      measure_model(backend, parameters, groups, sum, ReduceOp::sum, -static_cast<double>(padding), measure));
}

double clip_coefficient(double norm, double limit) { return limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6)); }

}  // namespace trireme::optim
