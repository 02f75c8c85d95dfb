#include "src/plan/step/work_time.hpp"

#include <vector>

#include "src/plan/cost/kernel_cost.hpp"
#include "src/plan/overlap.hpp"

namespace trireme::plan {
namespace {

/// Blocks of a tensor group's collectives, and the multiprocessors that products beside them leave free
/// (cuda/runtime/multiprocessors.hpp).
constexpr int tensor_group_blocks = 16;

void add(WorkTime& time, const KernelCall& call, const Cost& cost) {
  const double ms = cost.main + cost.end;
  switch (call.line) {
    case Line::forward:
    case Line::input_gradient:
    case Line::weight_gradient:
    case Line::logits:
      time.products += cost.main;
      time.memory_bound += cost.end;
      break;
    case Line::attention:
    case Line::attention_backward:
      time.attention += ms;
      break;
    case Line::optimizer:
    case Line::gradients:
      time.optimizer += ms;
      break;
    default:
      time.memory_bound += ms;
  }
  time.gaps += cost.gap;
}

}  // namespace

const char* name_of(Traffic traffic) {
  constexpr std::array<const char*, traffic_count> names = {"tensor",    "context",    "pipeline",
                                                            "gradients", "parameters", "scalars"};
  return names[static_cast<std::size_t>(traffic)];
}

double WorkTime::exposed() const {
  double sum = 0;
  for (const TrafficTime& time : traffic) sum += time.exposed_ms;
  return sum;
}

WorkTime& WorkTime::operator+=(const WorkTime& other) {
  products += other.products;
  attention += other.attention;
  memory_bound += other.memory_bound;
  optimizer += other.optimizer;
  gaps += other.gaps;
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    traffic[i].exposed_ms += other.traffic[i].exposed_ms;
    traffic[i].hidden_ms += other.traffic[i].hidden_ms;
  }
  return *this;
}

WorkTime operator*(double factor, WorkTime work) {
  for (double* part : {&work.products, &work.attention, &work.memory_bound, &work.optimizer, &work.gaps}) {
    *part *= factor;
  }
  for (TrafficTime& time : work.traffic) time = {factor * time.exposed_ms, factor * time.hidden_ms};
  return work;
}

WorkTime time_of(const Cluster& cluster, std::span<const WorkEvent> events, const StageGroups& groups, bool graphs) {
  Device beside_collective = cluster.device;
  if (cluster.device.multiprocessors > tensor_group_blocks) {
    beside_collective.product_tflops *=
        1 - static_cast<double>(tensor_group_blocks) / beside_collective.multiprocessors;
  }
  WorkTime time;
  std::vector<OverlapStep> steps;
  std::vector<Traffic> kinds;  // by operation
  double computed = 0;         // since the last of the steps
  int in_flight = 0;           // collectives of the tensor group
  for (const WorkEvent& event : events) {
    if (event.kind == WorkEvent::Kind::kernel) {
      const bool shares = in_flight > 0 && event.call.product;
      const Cost cost = cost_of(shares ? beside_collective : cluster.device, event.call, graphs);
      add(time, event.call, cost);
      computed += cost.main + cost.end + cost.gap;
      continue;
    }
    const auto operation = static_cast<std::size_t>(event.operation);
    if (event.kind == WorkEvent::Kind::wait) {
      in_flight -= kinds[operation] == Traffic::tensor ? 1 : 0;
      steps.push_back({std::exchange(computed, 0), OverlapStep::Kind::wait, event.operation});
      continue;
    }
    const bool tensor = event.group == parallel::GroupKind::tensor;
    const GroupPlacement& group = tensor ? groups.tensor : groups.context;
    const double ms = collective_ms(cluster, event.collective, event.bytes, group);
    if (kinds.size() <= operation) kinds.resize(operation + 1);
    kinds[operation] = tensor ? Traffic::tensor : Traffic::context;
    in_flight += tensor ? 1 : 0;
    const bool by_own_cores = cluster.cores_per_node > 0 && group.nodes() == 1;
    if (by_own_cores) {
      time.of(kinds[operation]).exposed_ms += ms;
      computed += ms;
    }
    steps.push_back({std::exchange(computed, 0), OverlapStep::Kind::start, event.operation, by_own_cores ? 0 : ms,
                     static_cast<int>(kinds[operation])});
  }
  const CriticalPath path = critical_path(steps);
  for (const OverlapStep& step : steps) {
    if (step.kind != OverlapStep::Kind::start) continue;
    const auto operation = static_cast<std::size_t>(step.operation);
    const double exposed = std::min(path.waits[operation], step.duration);
    // A wait for operations before it on the same link is exposed, too.
    time.of(kinds[operation]).exposed_ms += path.waits[operation];
    time.of(kinds[operation]).hidden_ms += step.duration - exposed;
  }
  return time;
}

}  // namespace trireme::plan
