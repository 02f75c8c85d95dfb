#include "src/optim/grad_norm.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/backend/host_numbers.hpp"

namespace trireme::optim {
namespace {

/// Returns whether this rank represents a parameter with a gradient among those of its replica.
auto counts_here(const parallel::GradientGroup& group) {
  return [rank = group.tensor.rank()](const parallel::Parameter& p) {
    return p.has_gradient && !p.frozen && p.counts_here(rank);
  };
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

/// Calls measure(bucket, begin, count, result) for the ranges of this rank's shard that count here, which adds to an
/// element of `results`, [groups] fp64. Combines each over the ranks. Subtracts `subtracted`, by group, if any, from
/// this rank's sums.
template <class Measure>
void measure_model(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups, TensorView results,
                   ReduceOp op, const Measure& measure, const std::vector<std::int64_t>& subtracted = {}) {
  Stream& stream = backend.compute_stream();
  for (std::size_t number = 0; number < groups.size(); ++number) {
    const parallel::GradientGroup& group = groups[number];
    const TensorView result = results.flat(static_cast<std::int64_t>(number), 1);
    backend.elementwise().fill(stream, subtracted.empty() ? 0 : -static_cast<double>(subtracted[number]), result);
    for_each_counted(parameters, groups, number, [&](std::size_t bucket, std::int64_t begin, std::int64_t count) {
      measure(bucket, begin, count, result);
    });
    if (parameters.is_sharded() && group.gradient.size() > 1)
      group.gradient.all_reduce(stream, result, op).wait(stream);
    group.model.all_reduce(stream, result, op).wait(stream);
  }
}

double total_of(Backend& backend, TensorView results) {
  const std::vector<double> numbers = read_numbers(backend, backend.compute_stream(), results);
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

}  // namespace

void sum_gradients(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups, TensorView sums,
                   int power) {
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count, TensorView sum) {
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
  measure_model(backend, parameters, groups, sums, power == infinity_norm ? ReduceOp::max : ReduceOp::sum, measure);
}

double parameter_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const Optimizer& optimizer,
                      NormGroups groups, TensorView sums) {
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count, TensorView sum) {
    backend.reduce().sum_squares(backend.compute_stream(), optimizer.masters(bucket).flat(begin, count), sum);
  };
  measure_model(backend, parameters, groups, sums, ReduceOp::sum, measure);
  return std::sqrt(total_of(backend, sums));
}

std::int64_t count_zero_gradients(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups,
                                  TensorView sums) {
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
  const auto measure = [&](std::size_t bucket, std::int64_t begin, std::int64_t count, TensorView sum) {
    backend.reduce().count_zeros(backend.compute_stream(), parameters.shard_gradients(bucket).flat(begin, count), sum);
  };
  measure_model(backend, parameters, groups, sums, ReduceOp::sum, measure, padding);
  return static_cast<std::int64_t>(total_of(backend, sums));
}

}  // namespace trireme::optim
