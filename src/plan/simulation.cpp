#include "src/plan/simulation.hpp"

#include <algorithm>
#include <map>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

using parallel::Message;
using parallel::Schedule;
using parallel::Step;
using parallel::StepKind;

double duration(const Step& step, const ChunkTimes& times) {
  switch (step.kind) {
    case StepKind::forward:
      return times.forward;
    case StepKind::backward:
      return times.backward_input + times.backward_weight;
    case StepKind::backward_input:
      return times.backward_input;
    case StepKind::backward_weight:
      return times.backward_weight;
  }
  return 0;
}

}  // namespace

ScheduleTimes ScheduleTimes::uniform(const Schedule& schedule, const ChunkTimes& times, double transfer) {
  return {std::vector<ChunkTimes>(static_cast<std::size_t>(schedule.stages * schedule.chunks), times), transfer};
}

Simulation simulate(const Schedule& schedule, const ScheduleTimes& times) {
  TRIREME_CHECK(static_cast<int>(times.chunks.size()) == schedule.stages * schedule.chunks, ShapeError,
                "{} times for {} stages of {} chunks", times.chunks.size(), schedule.stages, schedule.chunks);
  const auto ranks = static_cast<std::size_t>(schedule.stages);
  Simulation result;
  result.ranks.resize(ranks);
  std::map<Message, double> arrived;
  std::vector<double> busy(ranks, 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (int rank = 0; rank < schedule.stages; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      std::vector<TimedStep>& done = result.ranks[r];
      while (done.size() < schedule.steps[r].size()) {
        const Step& step = schedule.steps[r][done.size()];
        double start = done.empty() ? 0 : done.back().end;
        if (const auto needed = parallel::message_needed(schedule, rank, step)) {
          const auto found = arrived.find(*needed);
          if (found == arrived.end()) break;
          start = std::max(start, found->second);
        }
        const double length =
            duration(step, times.chunks[static_cast<std::size_t>(step.chunk * schedule.stages + rank)]);
        const double end = start + length;
        done.push_back({step, start, end});
        busy[r] += length;
        result.makespan = std::max(result.makespan, end);
        if (const auto made = parallel::message_made(schedule, rank, step)) {
          arrived[*made] = end + (made->rank == rank ? 0 : times.transfer);
        }
        progress = true;
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    TRIREME_CHECK(result.ranks[r].size() == schedule.steps[r].size(), ConfigError,
                  "in this schedule the ranks wait for one another: rank {} stops after {} of {} steps", r,
                  result.ranks[r].size(), schedule.steps[r].size());
    result.peak_in_flight.push_back(parallel::max_in_flight(schedule.steps[r]));
  }
  const double max_busy = *std::ranges::max_element(busy);
  result.bubble = max_busy > 0 ? result.makespan / max_busy - 1 : 0;
  return result;
}

}  // namespace trireme::plan
