#include "src/plan/simulation.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

using parallel::Message;
using parallel::Schedule;
using parallel::Step;
using parallel::StepKind;

double duration(const Step& step, const ChunkTimes& times) {
  if (step.kind == StepKind::forward) return times.forward;
  return (step.kind == StepKind::backward_weight ? 0 : times.backward_input) +
         (step.kind == StepKind::backward_input ? 0 : times.backward_weight);
}

/// Runs the steps of all ranks in dependency order of the messages.
class Run {
 public:
  Run(const Schedule& schedule, const ScheduleTimes& times)
      : schedule_(schedule),
        times_(times),
        sent_(static_cast<std::size_t>(2 * schedule.chunks * schedule.stages * schedule.micro_batches), not_sent),
        awaited_(static_cast<std::size_t>(schedule.stages), nothing) {
    result_.ranks.resize(awaited_.size());
    result_.times.resize(awaited_.size());
    for (int rank = schedule.stages; rank-- > 0;) runnable_.push_back(rank);
  }

  Simulation finish() {
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
    return std::move(result_);
  }

 private:
  static constexpr double not_sent = -1;
  static constexpr std::size_t nothing = ~std::size_t{0};

  std::size_t number(const Message& m) const {
    const int position = ((m.is_gradient ? 1 : 0) * schedule_.chunks + m.chunk) * schedule_.stages + m.rank;
    return static_cast<std::size_t>(position * schedule_.micro_batches + m.micro_batch);
  }

  /// Runs the steps of `rank` up to one whose message does not exist yet.
  void advance(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<TimedStep>& done = result_.ranks[r];
    done.reserve(schedule_.steps[r].size());
    while (done.size() < schedule_.steps[r].size()) {
      const Step& step = schedule_.steps[r][done.size()];
      double start = done.empty() ? 0 : done.back().end;
      if (const auto needed = parallel::message_needed(schedule_, rank, step)) {
        const double sent = sent_[number(*needed)];
        if (sent == not_sent) {
          awaited_[r] = number(*needed);
          return;
        }
        start = received(sent, start, result_.times[r]);
      }
      const double length =
          duration(step, times_.chunks[static_cast<std::size_t>(step.chunk * schedule_.stages + rank)]);
      done.push_back({step, start, start + length});
      result_.times[r].busy += length;
      result_.makespan = std::max(result_.makespan, done.back().end);
      if (const auto made = parallel::message_made(schedule_, rank, step)) send(*made, done.back().end);
    }
  }

  /// Time at which a rank that is free at `free` has a message that was sent at `sent`.
  double received(double sent, double free, RankTime& time) const {
    const bool from_other = schedule_.stages > 1;
    const double waits = std::max(0.0, sent - free);
    const double end = std::max(free, sent + (from_other ? times_.transfer : 0)) + (from_other ? times_.receive : 0);
    time.waits += waits;
    time.messages += end - free - waits;
    return end;
  }

  void send(const Message& message, double end) {
    const std::size_t n = number(message);
    sent_[n] = end;
    std::size_t& awaited = awaited_[static_cast<std::size_t>(message.rank)];
    if (awaited != n) return;
    awaited = nothing;
    runnable_.push_back(message.rank);
  }

  const Schedule& schedule_;
  const ScheduleTimes& times_;
  std::vector<double> sent_;          // end of the step that made each message
  std::vector<std::size_t> awaited_;  // by rank: message for which it waits
  std::vector<int> runnable_;
  Simulation result_;
};

}  // namespace

ScheduleTimes ScheduleTimes::uniform(const Schedule& schedule, const ChunkTimes& times, double transfer) {
  return {std::vector<ChunkTimes>(static_cast<std::size_t>(schedule.stages * schedule.chunks), times), transfer, 0};
}

Simulation simulate(const Schedule& schedule, const ScheduleTimes& times) {
  TRIREME_CHECK(static_cast<int>(times.chunks.size()) == schedule.stages * schedule.chunks, ShapeError,
                "{} times for {} stages of {} chunks", times.chunks.size(), schedule.stages, schedule.chunks);
  Simulation result = Run(schedule, times).finish();
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    TRIREME_CHECK(result.ranks[r].size() == schedule.steps[r].size(), ConfigError,
                  "in this schedule the ranks wait for one another: rank {} stops after {} of {} steps", r,
                  result.ranks[r].size(), schedule.steps[r].size());
    result.peak_in_flight.push_back(parallel::max_in_flight(schedule.steps[r]));
  }
  const double max_busy = std::ranges::max_element(result.times, {}, &RankTime::busy)->busy;
  result.bubble = max_busy > 0 ? result.makespan / max_busy - 1 : 0;
  return result;
}

}  // namespace trireme::plan
