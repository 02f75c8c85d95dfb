#include "src/plan/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

constexpr double us_per_ms = 1000;
constexpr const char* iteration_name = "iteration";

/// An iteration of one rank.
struct Iteration {
  double start_us, end_us;
};

/// The relevant iterations of each rank.
std::map<int, std::vector<Iteration>> iterations_of(const std::vector<TraceEvent>& trace) {
  std::map<int, std::vector<Iteration>> result;
  for (const TraceEvent& event : trace) {
    if (event.name == iteration_name) result[event.rank].push_back({event.start_us, event.end_us});
  }
  for (auto& [rank, iterations] : result) {
    std::ranges::sort(iterations, {}, &Iteration::start_us);
    if (iterations.size() > 1) iterations.erase(iterations.begin());
  }
  return result;
}

}  // namespace

std::vector<TraceSpan> spans_of(const Job& job, const StepPrediction& step, int stage) {
  std::vector<TraceSpan> spans;
  const auto add = [&](const char* name, const char* category, double start_ms, double end_ms, int chunk = -1,
                       int micro_batch = -1) {
    spans.push_back({name, category, chunk, micro_batch, start_ms * us_per_ms, end_ms * us_per_ms});
  };
  const parallel::Schedule schedule =
      parallel::make_schedule(schedule_of(job), job.grid.pipeline_size(), micro_batches_of(job), chunks_of(job));
  double now = 0;
  for (const TimedStep& timed : step.schedule.ranks[static_cast<std::size_t>(stage)]) {
    if (const auto message = parallel::message_needed(schedule, stage, timed.step)) {
      add(message->is_gradient ? "wait for gradient" : "wait for activation", "communication", now, timed.start,
          message->chunk, message->micro_batch);
    }
    add(name_of(timed.step.kind), "pipeline", timed.start, timed.end, timed.step.chunk, timed.step.micro_batch);
    now = timed.end;
  }
  // The end of the step, from its end backwards.
  const WorkTime& work = step.work;
  const double update = work.optimizer + work.of(Traffic::parameters).exposed_ms;
  const double norm = work.of(Traffic::scalars).exposed_ms;
  const double updated = std::max(now, step.step_ms - update);
  const double reduced = std::max(now, updated - norm);
  add("reduce gradients", "communication", now, reduced);
  add("loss and gradient norm", "communication", reduced, updated);
  add("optimizer", "update", updated, std::max(updated, step.step_ms));
  add(iteration_name, "iteration", 0, std::max(updated, step.step_ms));
  return spans;
}

std::vector<EventDifference> compare(const Job& job, const StepPrediction& step, const std::vector<TraceEvent>& trace) {
  const std::map<int, std::vector<Iteration>> iterations = iterations_of(trace);
  TRIREME_CHECK(!iterations.empty(), ConfigError, "the trace has no event `{}`: it is not that of a training run",
                iteration_name);
  const int ranks = job.grid.world_size();
  TRIREME_CHECK(static_cast<int>(iterations.size()) == ranks && iterations.rbegin()->first == ranks - 1 &&
                    iterations.begin()->first == 0,
                ConfigError, "the trace has {} ranks, the job {}", iterations.size(), ranks);
  std::map<std::pair<std::string, int>, EventDifference> rows;
  for (const TraceEvent& event : trace) {
    const auto of_rank = iterations.find(event.rank);
    if (of_rank == iterations.end()) continue;
    const auto count = static_cast<double>(of_rank->second.size());
    const bool counts = std::ranges::any_of(of_rank->second, [&](const Iteration& iteration) {
      return event.start_us >= iteration.start_us && event.end_us <= iteration.end_us;
    });
    if (!counts) continue;
    EventDifference& row = rows[{event.name, event.rank}];
    row.measured_ms += (event.end_us - event.start_us) / us_per_ms / count;
    row.measured_count += 1 / count;
  }
  std::vector<std::vector<TraceSpan>> spans;
  for (int stage = 0; stage < job.grid.pipeline_size(); ++stage) spans.push_back(spans_of(job, step, stage));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const TraceSpan& span : spans[static_cast<std::size_t>(job.grid.position(rank).pipeline)]) {
      EventDifference& row = rows[{span.name, rank}];
      row.predicted_ms += (span.end_us - span.start_us) / us_per_ms;
      row.predicted_count += 1;
    }
  }
  std::vector<EventDifference> result;
  for (auto& [key, row] : rows) {
    std::tie(row.name, row.rank) = key;
    result.push_back(std::move(row));
  }
  std::ranges::stable_sort(result, std::greater{},
                           [](const EventDifference& row) { return std::abs(row.difference_ms()); });
  return result;
}

}  // namespace trireme::plan
