#include "src/plan/step/work_time.hpp"

#include <algorithm>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::plan {

using parallel::StepKind;

namespace {

void add(WorkTime& time, const KernelCall& call, const Cost& cost) {
  const double ms = cost.main + cost.end;
  switch (call.kind) {
    case KernelKind::forward:
    case KernelKind::input_gradient:
    case KernelKind::weight_gradient:
    case KernelKind::logits:
      time.products += cost.main;
      time.memory_bound += cost.end;
      break;
    case KernelKind::attention:
    case KernelKind::attention_backward:
      time.attention += ms;
      break;
    case KernelKind::optimizer:
    case KernelKind::gradients:
      time.optimizer += ms;
      break;
    default:
      time.memory_bound += ms;
  }
  time.gaps += cost.gap;
  time.idle += cost.gap + cost.idle;
}

Traffic traffic_of(const WorkEvent& event) {
  using enum parallel::GroupKind;
  constexpr std::pair<parallel::GroupKind, Traffic> known[] = {
      {tensor, Traffic::tensor},       {expert_tensor, Traffic::tensor}, {context, Traffic::context},
      {expert, Traffic::experts},      {pipeline, Traffic::pipeline},    {model, Traffic::scalars},
      {expert_model, Traffic::scalars}};
  for (const auto& [group, traffic] : known) {
    if (group == event.group) return traffic;
  }
  return event.collective == Collective::all_gather ? Traffic::parameters : Traffic::gradients;
}

}  // namespace

CriticalPath critical_path(std::span<const OverlapStep> steps) {
  constexpr double not_started = -1;
  CriticalPath path;
  std::vector<double> link_is_free, ends;
  const auto at = [](std::vector<double>& values, int i, double initial) -> double& {
    if (values.size() <= static_cast<std::size_t>(i)) values.resize(static_cast<std::size_t>(i) + 1, initial);
    return values[static_cast<std::size_t>(i)];
  };
  for (const OverlapStep& step : steps) {
    path.time += step.compute;
    if (step.kind == OverlapStep::Kind::start) {
      double& free = at(link_is_free, step.link, 0);
      free = std::max(free, path.time) + step.duration;
      at(ends, step.operation, not_started) = free;
      continue;
    }
    const double end = at(ends, step.operation, not_started);
    TRIREME_CHECK(end != not_started, ConfigError, "communication {} is waited for and was never started",
                  step.operation);
    at(path.waits, step.operation, 0) += std::max(0.0, end - path.time);
    path.time = std::max(path.time, end);
  }
  path.waits.resize(ends.size());
  return path;
}

const char* name_of(Traffic traffic) {
  constexpr std::array<const char*, traffic_count> names = {"tensor",    "context",    "experts", "pipeline",
                                                            "gradients", "parameters", "scalars", "host"};
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
  hidden_update += other.hidden_update;
  gaps += other.gaps;
  idle += other.idle;
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    traffic[i].exposed_ms += other.traffic[i].exposed_ms;
    traffic[i].hidden_ms += other.traffic[i].hidden_ms;
  }
  return *this;
}

WorkTime operator*(double factor, WorkTime work) {
  for (double* part : {&work.products, &work.attention, &work.memory_bound, &work.optimizer, &work.hidden_update,
                       &work.gaps, &work.idle}) {
    *part *= factor;
  }
  for (TrafficTime& time : work.traffic) time = {factor * time.exposed_ms, factor * time.hidden_ms};
  return work;
}

GroupPlacements::GroupPlacements(const Cluster& cluster, const parallel::ProcessGrid& grid) {
  using parallel::GroupKind;
  const int t = grid.tensor_size(), c = grid.context_size(), d = grid.data_size(), p = grid.pipeline_size();
  const int e = grid.expert_size() * grid.expert_tensor_size();
  const int stage = grid.stage_size();
  const auto set = [&](GroupKind kind, int ranks, int stride) {
    groups_[static_cast<std::size_t>(kind)] = placement(cluster, ranks, stride);
  };
  set(GroupKind::tensor, t, 1);
  set(GroupKind::context, c, t);
  set(GroupKind::data, d, t * c);
  set(GroupKind::gradient, c * d, t);
  set(GroupKind::pipeline, p, stage);
  set(GroupKind::embedding, std::min(p, 2), stage * std::max(1, p - 1));
  set(GroupKind::expert, grid.token_group_size(), grid.folds_experts() ? 1 : t);
  set(GroupKind::expert_gradient, grid.expert_gradient_size(), e);
  set(GroupKind::expert_tensor, grid.expert_tensor_size(), 1);
  // `ranks` neighbours of every stage.
  const auto set_in_all_stages = [&](GroupKind kind, int ranks) {
    const int on_node = std::min(ranks, cluster.ranks_per_node) * std::clamp(cluster.ranks_per_node / stage, 1, p);
    groups_[static_cast<std::size_t>(kind)] = {ranks * p, on_node};
  };
  set_in_all_stages(GroupKind::model, t);
  set_in_all_stages(GroupKind::expert_model, e);
}

void WorkTimer::add(std::span<const WorkEvent> events, std::optional<Traffic> traffic) {
  for (const WorkEvent& event : events) {
    if (event.kind == WorkEvent::Kind::start) {
      start(event, traffic);
    } else if (event.kind == WorkEvent::Kind::wait) {
      wait(event.operation);
    } else if (event.kind == WorkEvent::Kind::kernel) {
      const Cost cost = costs_.of(event.call, graphs_, in_flight_ > 0);
      plan::add(time_, event.call, cost);
      computed_ += cost.main + cost.end + cost.gap;
    }
  }
}

void WorkTimer::start(const WorkEvent& event, std::optional<Traffic> traffic) {
  const Traffic kind = traffic.value_or(traffic_of(event));
  const GroupPlacement& group = groups_.of(event.group);
  const double ms = collective_ms(cluster_, event.collective, event.bytes, group);
  const auto operation = static_cast<std::size_t>(event.operation);
  if (kinds_.size() <= operation) kinds_.resize(operation + 1);
  kinds_[operation] = kind;
  in_flight_ += kind == Traffic::tensor ? 1 : 0;
  const bool by_own_cores = cluster_.cores_per_node > 0 && group.nodes() == 1;
  if (by_own_cores) {
    time_.of(kind).exposed_ms += ms;
    computed_ += ms;
  }
  steps_.push_back({std::exchange(computed_, 0), OverlapStep::Kind::start, event.operation, by_own_cores ? 0 : ms,
                    static_cast<int>(kind)});
}

void WorkTimer::wait(int operation) {
  const auto number = static_cast<std::size_t>(operation);
  if (number >= kinds_.size() || !kinds_[number]) return;
  in_flight_ -= kinds_[number] == Traffic::tensor ? 1 : 0;
  steps_.push_back({std::exchange(computed_, 0), OverlapStep::Kind::wait, operation});
}

WorkTime WorkTimer::time() const {
  WorkTime time = time_;
  const CriticalPath path = critical_path(steps_);
  for (const OverlapStep& step : steps_) {
    if (step.kind != OverlapStep::Kind::start) continue;
    const auto operation = static_cast<std::size_t>(step.operation);
    // Its share of a wait for earlier operations on the same link is also exposed.
    const double wait = path.waits[operation];
    time.of(*kinds_[operation]).exposed_ms += wait;
    time.idle += wait * costs_.share_beside_collective();
    time.of(*kinds_[operation]).hidden_ms += step.duration - std::min(wait, step.duration);
  }
  return time;
}

WorkTime time_of(const Cluster& cluster, CallCosts& costs, std::span<const WorkEvent> events,
                 const GroupPlacements& groups, bool graphs) {
  WorkTimer timer(cluster, costs, groups, graphs);
  timer.add(events);
  return timer.time();
}

WorkTime UpdateTimer::hooks(int chunk) const {
  WorkTimer timer = this->timer();
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const UpdateWork::Unit& unit = work_.units[i];
    if (unit.chunk != chunk) continue;
    timer.add(unit.before_backward);
    timer.pass(units_[i].backward);
    timer.add(unit.after_backward);
  }
  return timer.time();
}

WorkTime UpdateTimer::reduction(const std::vector<TimedStep>& steps, int last_micro_batch) const {
  WorkTimer timer = this->timer();
  double now = -1;  // before the first of these backwards
  for (const TimedStep& timed : steps) {
    const bool completes = timed.step.kind == StepKind::backward || timed.step.kind == StepKind::backward_weight;
    if (!completes || timed.step.micro_batch != last_micro_batch) continue;
    if (now >= 0) timer.pass(timed.start - now);
    now = timed.end;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const UpdateWork::Unit& unit = work_.units[i];
      if (unit.chunk != timed.step.chunk) continue;
      timer.add(unit.before_last_backward);
      timer.pass(units_[i].backward);
      timer.add(unit.after_last_backward);
    }
  }
  if (now >= 0) timer.pass(steps.back().end - now);
  timer.add(work_.reduction, Traffic::gradients);
  return timer.time();
}

WorkTime UpdateTimer::optimizer(const std::vector<TimedStep>& steps) const {
  WorkTimer timer = this->timer();
  timer.add(work_.optimizer);
  const double kernels = timer.time().total();
  double now = 0, idle = 0;
  for (const TimedStep& timed : steps) {
    if (timed.step.kind != StepKind::forward || timed.step.micro_batch != 0) continue;
    timer.pass(timed.start - now);
    idle += timed.start - now;
    now = timed.end;
    for (std::size_t i = units_.size(); i-- > 0;) {
      if (work_.units[i].chunk != timed.step.chunk) continue;
      timer.add(work_.units[i].before_forward);
      timer.pass(units_[i].forward);
      idle += units_[i].idle;
    }
  }
  WorkTime time = timer.time();
  if (work_.buckets_beside_forward > 0 && cluster_.cores_per_node == 0) {
    time.hidden_update = hidden_update_ms(time.optimizer, work_.buckets_beside_forward, idle);
    time.optimizer -= time.hidden_update;
  }
  // State in host memory is copied in both directions at once.
  const HostBytes bytes = host_bytes_of(work_.optimizer);
  double forward = 0;
  for (const UnitTime& unit : units_) forward += work_.buckets_beside_forward > 0 ? unit.forward : 0;
  time.add_host_copies(host_copy_ms(cluster_, bytes.to_host, bytes.from_host), kernels + forward);
  return time;
}

UpdateTime UpdateTimer::update(const std::vector<TimedStep>& steps, int micro_batches, int chunks) const {
  UpdateTime time;
  time.clearing = time_of(cluster_, costs_, work_.clearing, groups_, graphs_);
  time.reduction = reduction(steps, micro_batches - 1);
  for (int chunk = 0; chunk < chunks; ++chunk) time.reduction += -1 * hooks(chunk);
  WorkTimer norm = timer();
  norm.add(work_.norm, Traffic::scalars);
  time.norm = norm.time();
  time.update = optimizer(steps);
  return time;
}

}  // namespace trireme::plan
