#include "src/parallel/pipeline/schedule.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::parallel {
namespace {

/// Alternates `forwards` and `backwards` after the first `warm_up` forwards.
std::vector<Step> in_turn(const std::vector<Step>& forwards, const std::vector<Step>& backwards, int warm_up) {
  std::vector<Step> steps;
  const int count = static_cast<int>(forwards.size());
  for (int i = 0; i < count + warm_up; ++i) {
    if (i < count) steps.push_back(forwards[static_cast<std::size_t>(i)]);
    if (i >= warm_up) steps.push_back(backwards[static_cast<std::size_t>(i - warm_up)]);
  }
  return steps;
}

/// Chunks in turn, each with as many micro-batches as there are stages, until every chunk has had at least
/// `micro_batches`: forwards through the chunks upwards, backwards downwards.
std::vector<Step> chunk_by_chunk(StepKind kind, int stages, int micro_batches, int chunks) {
  std::vector<Step> steps;
  for (int first = 0; first < micro_batches; first += stages) {
    for (int turn = 0; turn < chunks; ++turn) {
      const int chunk = kind == StepKind::forward ? turn : chunks - 1 - turn;
      for (int i = 0; i < stages; ++i) steps.push_back({kind, chunk, first + i});
    }
  }
  return steps;
}

/// Adds the backward of the weights of each micro-batch, `delay` backwards of inputs later.
std::vector<Step> with_late_weights(const std::vector<Step>& steps, int delay) {
  std::vector<Step> result;
  std::vector<Step> late;
  for (const Step& step : steps) {
    result.push_back(step);
    if (step.kind != StepKind::backward_input) continue;
    late.push_back({StepKind::backward_weight, step.chunk, step.micro_batch});
    if (static_cast<int>(late.size()) <= delay) continue;
    result.push_back(late.front());
    late.erase(late.begin());
  }
  result.insert(result.end(), late.begin(), late.end());
  return result;
}

std::vector<Step> steps_of(ScheduleKind kind, int stages, int rank, int micro_batches, int chunks) {
  const auto all = [&](StepKind step) { return chunk_by_chunk(step, stages, micro_batches, chunks); };
  const auto is_missing = [&](const Step& step) { return step.micro_batch >= micro_batches; };
  const bool halves = kind == ScheduleKind::zero_bubble;
  const std::vector<Step> forwards = all(StepKind::forward);
  const int count = static_cast<int>(forwards.size());
  int ahead = stages - rank - 1;
  if (kind == ScheduleKind::gpipe) ahead = count;
  if (kind == ScheduleKind::interleaved) ahead = std::min(2 * ahead + (chunks - 1) * stages, count);
  std::vector<Step> steps = in_turn(forwards, all(halves ? StepKind::backward_input : StepKind::backward), ahead);
  std::erase_if(steps, is_missing);
  return halves ? with_late_weights(steps, rank) : steps;
}

Schedule empty_schedule(int stages, int micro_batches, int chunks) {
  TRIREME_CHECK(stages >= 1 && micro_batches >= 1 && chunks >= 1, ConfigError,
                "a pipeline of {} stages with {} micro-batches and {} chunks a stage: each is at least 1", stages,
                micro_batches, chunks);
  return {stages, chunks, micro_batches, {}};
}

}  // namespace

const char* name_of(StepKind kind) {
  constexpr const char* names[] = {"forward", "backward", "backward input", "backward weight"};
  return names[static_cast<std::size_t>(kind)];
}

const char* name_of(ScheduleKind kind) {
  constexpr const char* names[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
  return names[static_cast<std::size_t>(kind)];
}

Schedule make_schedule(ScheduleKind kind, int stages, int micro_batches, int chunks) {
  Schedule schedule = empty_schedule(stages, micro_batches, chunks);
  TRIREME_CHECK(chunks == 1 || kind == ScheduleKind::interleaved, ConfigError,
                "a {} schedule of {} chunks a stage: only interleaved has several", name_of(kind), chunks);
  for (int rank = 0; rank < stages; ++rank) {
    schedule.steps.push_back(steps_of(kind, stages, rank, micro_batches, chunks));
  }
  return schedule;
}

Schedule make_forward_schedule(int stages, int micro_batches, int chunks) {
  Schedule schedule = empty_schedule(stages, micro_batches, chunks);
  std::vector<Step> forwards = chunk_by_chunk(StepKind::forward, stages, micro_batches, chunks);
  std::erase_if(forwards, [&](const Step& step) { return step.micro_batch >= micro_batches; });
  schedule.steps.assign(static_cast<std::size_t>(stages), forwards);
  return schedule;
}

int max_in_flight(const std::vector<Step>& steps) {
  int now = 0;
  int max_count = 0;
  for (const Step& step : steps) {
    if (step.kind == StepKind::forward) max_count = std::max(max_count, ++now);
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_weight) --now;
  }
  return max_count;
}

std::optional<Message> message_made(const Schedule& schedule, int rank, const Step& step) {
  if (step.kind == StepKind::backward_weight) return {};
  const bool forward = step.kind == StepKind::forward;
  // Position of the chunk in the full model, and that of the chunk its result goes to.
  const int to = step.chunk * schedule.stages + rank + (forward ? 1 : -1);
  if (to < 0 || to >= schedule.stages * schedule.chunks) return {};
  return Message{!forward, to % schedule.stages, to / schedule.stages, step.micro_batch};
}

std::optional<Message> message_needed(const Schedule& schedule, int rank, const Step& step) {
  if (step.kind == StepKind::backward_weight) return {};
  const bool forward = step.kind == StepKind::forward;
  const int position = step.chunk * schedule.stages + rank;
  const bool needs = forward ? position > 0 : position + 1 < schedule.stages * schedule.chunks;
  if (!needs) return {};
  return Message{!forward, rank, step.chunk, step.micro_batch};
}

}  // namespace trireme::parallel
