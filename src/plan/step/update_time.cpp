#include "src/plan/step/update_time.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/plan/cost/kernel_cost.hpp"
#include "src/plan/overlap.hpp"

namespace trireme::plan {
namespace {

using parallel::DataSharding;

/// Equal operations of `ms` in total. Each starts at the end of its part of `beside_ms`, and all are waited for then.
TrafficTime behind(double ms, double beside_ms, int parts) {
  std::vector<OverlapStep> steps;
  for (int i = 0; i < parts; ++i) steps.push_back({beside_ms / parts, OverlapStep::Kind::start, i, ms / parts});
  for (int i = 0; i < parts; ++i) steps.push_back({0, OverlapStep::Kind::wait, i});
  const double exposed = critical_path(steps).time - beside_ms;
  return {exposed, ms - exposed};
}

/// Equal operations of `ms` in total, all started at once. Each is waited for before its part of `beside_ms`.
TrafficTime ahead(double ms, double beside_ms, int parts) {
  std::vector<OverlapStep> steps;
  for (int i = 0; i < parts; ++i) steps.push_back({0, OverlapStep::Kind::start, i, ms / parts});
  for (int i = 0; i < parts; ++i) steps.push_back({i == 0 ? 0 : beside_ms / parts, OverlapStep::Kind::wait, i});
  const double exposed = critical_path(steps).time - beside_ms * (parts - 1) / parts;
  return {exposed, ms - exposed};
}

/// Buckets of a buffer (DataParallelOptions::bucket_elements).
int bucket_count(const parallel::DataParallelOptions& data, double parameters, int ranks) {
  if (!data.overlap_reduce && !data.overlap_gather && data.bucket_elements == 0) return 1;
  const double elements = data.bucket_elements > 0 ? static_cast<double>(data.bucket_elements)
                                                   : std::max(40e6, 1e6 * static_cast<double>(ranks));
  return std::clamp(static_cast<int>(std::ceil(parameters / elements)), 1, 1000);
}

KernelCall memory_bound(Line line, double bytes, int launches) { return {line, bytes, launches}; }

}  // namespace

UpdateTime update_time(const Cluster& cluster, const Job& job, const UpdateGroups& groups, const RankShare& rank) {
  const parallel::DataParallelOptions& data = job.execution.parallel.data_parallel;
  const int ranks = groups.gradient.ranks;
  const bool sharded = data.sharding != DataSharding::none;
  const double value = static_cast<double>(size_of(job.execution.dtype));
  const double sum = static_cast<double>(size_of(accumulation_type(job.execution.dtype)));
  const double gradient_bytes = rank.parameters * (data.low_precision_gradients ? value : sum);
  const double own = rank.parameters / (sharded ? ranks : 1);
  const int buckets = bucket_count(data, rank.parameters, ranks);
  UpdateTime time;
  const auto enqueue = [&](WorkTime& work, Line line, double bytes, int launches) {
    const Cost cost = cost_of(cluster.device, memory_bound(line, bytes, launches), job.execution.cuda_graphs);
    work.optimizer += cost.main;
    work.gaps += cost.gap;
  };
  const auto expose = [](WorkTime& work, Traffic kind, const TrafficTime& traffic) {
    work.of(kind).exposed_ms += traffic.exposed_ms;
    work.of(kind).hidden_ms += traffic.hidden_ms;
  };
  const auto collective = [&](Collective op, double bytes, const GroupPlacement& group) {
    return collective_ms(cluster, op, bytes, group);
  };

  enqueue(time.reduction, Line::gradients,
          gradient_bytes / (data.sharding == DataSharding::optimizer_and_gradients ? ranks : 1), 1);
  const Collective reduction = sharded ? Collective::reduce_scatter : Collective::all_reduce;
  if (data.sharding == DataSharding::optimizer_and_gradients) {
    // Every unit of every micro-batch.
    const int units = std::max(1, rank.layers);
    const double ms = units * collective(reduction, gradient_bytes / units, groups.gradient);
    const TrafficTime one = data.overlap_reduce ? behind(ms, rank.backward_ms, units) : TrafficTime{ms, 0};
    expose(time.reduction, Traffic::gradients,
           {rank.micro_batches * one.exposed_ms, rank.micro_batches * one.hidden_ms});
  } else {
    const double ms = buckets * collective(reduction, gradient_bytes / buckets, groups.gradient);
    expose(time.reduction, Traffic::gradients,
           data.overlap_reduce ? behind(ms, rank.last_backward_ms, buckets) : TrafficTime{ms, 0});
  }
  if (rank.shared_parameters > 0) {
    const double bytes = rank.shared_parameters * sum / (sharded ? ranks : 1);
    expose(time.reduction, Traffic::gradients, {collective(Collective::all_reduce, bytes, groups.embedding), 0});
  }

  // The loss and the norm are sums over all ranks, which the host reads.
  const double scalar_ms =
      collective(Collective::all_reduce, 8, groups.model) + collective(Collective::all_reduce, 8, groups.gradient);
  expose(time.after, Traffic::scalars, {2 * scalar_ms, 0});
  time.after.gaps += 2e-3 * cluster.device.host_wait_us;
  enqueue(time.after, Line::gradients, own * sum, 2);
  // AdamW reads the gradient, reads and writes master and moments, and writes the rounded value. It starts one kernel
  // for each stretch of equal weight decay, eight a layer.
  const auto moments = static_cast<double>(optim::moment_count(job.options.optimizer.kind));
  const double adam_bytes = own * (sum * (1 + 2 + 2 * moments) + (value == sum ? 0 : value));
  enqueue(time.after, Line::optimizer, adam_bytes, 8 * rank.layers + 2);
  if (sharded) {
    const double ms = buckets * collective(Collective::all_gather, rank.parameters * value / buckets, groups.gradient);
    expose(time.after, Traffic::parameters,
           data.overlap_gather ? ahead(ms, rank.forward_ms, buckets) : TrafficTime{ms, 0});
  }
  return time;
}

}  // namespace trireme::plan
