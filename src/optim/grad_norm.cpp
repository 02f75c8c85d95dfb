#include "src/optim/grad_norm.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::optim {
namespace {

/// Returns whether this rank represents a parameter with a gradient among those of its replica.
auto counts_here(const parallel::GradientGroup& group) {
  return [rank = group.tensor.rank()](const parallel::Parameter& p) { return p.has_gradient && p.counts_here(rank); };
}

/// Calls function(bucket, begin, count) for the ranges of this rank's shard that count here in gradient group `number`.
template <class Function>
void for_each_counted(const parallel::ParameterBuffer& parameters, NormGroups groups, std::size_t number,
                      const Function& function) {
  for (std::size_t bucket = 0; bucket < parameters.layout().buckets().size(); ++bucket) {
    if (static_cast<std::size_t>(parameters.layout().buckets()[bucket].gradient_group) != number) continue;
    parameters.for_each_stretch(bucket, counts_here(groups[number]),
                                [&](bool count_here, std::int64_t begin, std::int64_t count) {
                                  if (count_here) function(bucket, begin, count);
                                });
  }
}

/// Calls measure(bucket, begin, count) for the ranges of this rank's shard that count here. Combines `result`, [1]
/// fp64, to which it adds, over the ranks and the gradient groups. Subtracts `subtracted`, by group, if any, from this
/// rank's sums.
template <class Measure>
double measure_model(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups,
                     TensorView result, ReduceOp op, const Measure& measure,
                     const std::vector<std::int64_t>& subtracted = {}) {
  Stream& stream = backend.compute_stream();
  double total = 0;
  for (std::size_t number = 0; number < groups.size(); ++number) {
    const parallel::GradientGroup& group = groups[number];
    backend.elementwise().fill(stream, subtracted.empty() ? 0 : -static_cast<double>(subtracted[number]), result);
    for_each_counted(parameters, groups, number, measure);
    if (parameters.is_sharded() && group.gradient.size() > 1)
      group.gradient.all_reduce(stream, result, op).wait(stream);
    group.model.all_reduce(stream, result, op).wait(stream);
    double value = 0;
    backend.copy_to_host(stream, result, TensorView(&value, {1}));
    stream.synchronize();
    if (op == ReduceOp::sum) {
      total += value;
    } else if (number == 0 || std::isnan(value) || value > total) {
      total = value;
    }
  }
  return total;
}

}  // namespace

double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups, TensorView sum,
                     int power) {
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
  const double value = measure_model(backend, parameters, groups, sum, op, measure);
  if (power == infinity_norm) return value;
  return power == 2 ? std::sqrt(value) : std::pow(value, 1.0 / power);
}

double parameter_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const Optimizer& optimizer,
                      NormGroups groups, TensorView sum) {
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count) {
    backend.reduce().sum_squares(backend.compute_stream(), optimizer.masters(bucket).flat(begin, count), sum);
  };
  return std::sqrt(measure_model(backend, parameters, groups, sum, ReduceOp::sum, measure));
}

std::int64_t count_zero_gradients(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups,
                                  TensorView sum) {
  // Padding inside the ranges is zero and must not count.
  std::vector<std::int64_t> padding(groups.size());
  for (std::size_t number = 0; number < groups.size(); ++number) {
    for_each_counted(parameters, groups, number,
                     [&](std::size_t, std::int64_t, std::int64_t count) { padding[number] += count; });
  }
  for (std::size_t i = 0; i < parameters.parameters().size(); ++i) {
    const parallel::Parameter& p = parameters.parameters()[i];
    const auto number = static_cast<std::size_t>(p.gradient_group);
    if (!counts_here(groups[number])(p)) continue;
    const parallel::ShardRange own = parameters.shard_range(i);
    padding[number] -= std::clamp<std::int64_t>(p.box.numel() - own.begin, 0, own.count);
  }
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count) {
    backend.reduce().count_zeros(backend.compute_stream(), parameters.shard_gradients(bucket).flat(begin, count), sum);
  };
  return static_cast<std::int64_t>(measure_model(backend, parameters, groups, sum, ReduceOp::sum, measure, padding));
}

double clip_coefficient(double norm, double limit) { return limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6)); }

}  // namespace trireme::optim
