#include "src/plan/step/update_time.hpp"

namespace trireme::plan {

using parallel::StepKind;

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
  double now = 0;
  for (const TimedStep& timed : steps) {
    if (timed.step.kind != StepKind::forward || timed.step.micro_batch != 0) continue;
    timer.pass(timed.start - now);
    now = timed.end;
    for (std::size_t i = units_.size(); i-- > 0;) {
      if (work_.units[i].chunk != timed.step.chunk) continue;
      timer.add(work_.units[i].before_forward);
      timer.pass(units_[i].forward);
    }
  }
  return timer.time();
}

UpdateTime UpdateTimer::update(const std::vector<TimedStep>& steps, int micro_batches, int chunks) const {
  UpdateTime time;
  time.clearing = time_of(cluster_, work_.clearing, groups_, graphs_);
  time.reduction = reduction(steps, micro_batches - 1);
  for (int chunk = 0; chunk < chunks; ++chunk) time.reduction += -1 * hooks(chunk);
  WorkTimer norm = timer();
  norm.add(work_.norm, Traffic::scalars);
  time.norm = norm.time();
  time.update = optimizer(steps);
  return time;
}

}  // namespace trireme::plan
