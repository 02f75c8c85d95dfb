#include "src/parallel/pipeline/schedule.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::parallel {
namespace {

std::vector<Step> gpipe(int micro_batches) {
  std::vector<Step> steps;
  for (int m = 0; m < micro_batches; ++m) steps.push_back({StepKind::forward, 0, m});
  for (int m = 0; m < micro_batches; ++m) steps.push_back({StepKind::backward, 0, m});
  return steps;
}

std::vector<Step> one_forward_one_backward(int stages, int rank, int micro_batches) {
  std::vector<Step> steps;
  const int warm_up = std::min(stages - rank - 1, micro_batches);
  for (int m = 0; m < warm_up; ++m) steps.push_back({StepKind::forward, 0, m});
  for (int m = warm_up; m < micro_batches; ++m) {
    steps.push_back({StepKind::forward, 0, m});
    steps.push_back({StepKind::backward, 0, m - warm_up});
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) steps.push_back({StepKind::backward, 0, m});
  return steps;
}

Schedule empty_schedule(int stages, int micro_batches) {
  TRIREME_CHECK(stages >= 1 && micro_batches >= 1, ConfigError, "a pipeline of {} stages with {} micro-batches", stages,
                micro_batches);
  return {stages, 1, micro_batches, {}};
}

}  // namespace

Schedule make_schedule(ScheduleKind kind, int stages, int micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  for (int rank = 0; rank < stages; ++rank) {
    schedule.steps.push_back(kind == ScheduleKind::gpipe ? gpipe(micro_batches)
                                                         : one_forward_one_backward(stages, rank, micro_batches));
  }
  return schedule;
}

Schedule make_forward_schedule(int stages, int micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  std::vector<Step> forwards = gpipe(micro_batches);
  forwards.resize(static_cast<std::size_t>(micro_batches));
  schedule.steps.assign(static_cast<std::size_t>(stages), forwards);
  return schedule;
}

bool message_made(const Schedule& schedule, int rank, const Step& step, Message& message) {
  if (step.kind == StepKind::backward_weight) return false;
  const bool forward = step.kind == StepKind::forward;
  // Position of the chunk in the whole model, and that of the chunk its result goes to.
  const int to = step.chunk * schedule.stages + rank + (forward ? 1 : -1);
  message = {!forward, 0, 0, step.micro_batch};
  if (to < 0 || to >= schedule.stages * schedule.chunks) return false;
  message.rank = to % schedule.stages;
  message.chunk = to / schedule.stages;
  return true;
}

bool message_needed(const Schedule& schedule, int rank, const Step& step, Message& message) {
  if (step.kind == StepKind::backward_weight) return false;
  const bool forward = step.kind == StepKind::forward;
  message = {!forward, rank, step.chunk, step.micro_batch};
  const int position = step.chunk * schedule.stages + rank;
  return forward ? position > 0 : position + 1 < schedule.stages * schedule.chunks;
}

}  // namespace trireme::parallel
