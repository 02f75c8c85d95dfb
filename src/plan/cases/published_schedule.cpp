#include "src/plan/cases/published_schedule.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace trireme::plan {
namespace {

using parallel::ScheduleKind;
using parallel::StepKind;

/// Steps done by a rank, and arrival times of the messages for the next ones.
struct RankState {
  int forwards = 0, backwards = 0, weights = 0;
  double free_at = 0;
  std::vector<double> activations, gradients;  ///< times of arrival, by micro-batch
};

/// Chooses the steps of all ranks in the order of their times.
class AutomaticScheduler {
 public:
  AutomaticScheduler(int stages, int micro_batches, int in_flight, double kept_share, const ScheduleTimes& times)
      : m_(micro_batches),
        in_flight_(in_flight),
        kept_share_(kept_share),
        times_(times),
        ranks_(static_cast<std::size_t>(stages)) {
    ranks_.front().activations.assign(static_cast<std::size_t>(m_), 0);
    result_ = {stages, 1, micro_batches, std::vector<std::vector<parallel::Step>>(static_cast<std::size_t>(stages))};
  }

  parallel::Schedule run() {
    for (int step = 0; step < 3 * m_ * result_.stages; ++step) {
      std::size_t next = 0;
      double earliest = infinity;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const double start = start_of(r);
        if (start < earliest) {
          earliest = start;
          next = r;
        }
      }
      do_step(next, earliest);
    }
    return std::move(result_);
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  static double arrival(const std::vector<double>& times, int micro_batch) {
    const auto i = static_cast<std::size_t>(micro_batch);
    return i < times.size() ? times[i] : infinity;
  }
  /// Before its first backward a rank runs only the forwards that fill the time until then, if forwards and backwards
  /// take equally long. Another forward would delay the first gradient on its way to the first rank.
  int limit(std::size_t r) const {
    const RankState& rank = ranks_[r];
    if (rank.backwards > 0) return in_flight_;
    const int times = in_flight_ / result_.stages;
    return times * (result_.stages - static_cast<int>(r)) - (times - 1);
  }
  double forward_arrival(std::size_t r) const {
    const RankState& rank = ranks_[r];
    const double held = rank.forwards - rank.backwards + kept_share_ * (rank.backwards - rank.weights);
    return held + 1 <= limit(r) ? arrival(rank.activations, rank.forwards) : infinity;
  }
  double start_of(std::size_t r) const {
    const RankState& rank = ranks_[r];
    if (rank.weights < rank.backwards) return rank.free_at;
    return std::max(rank.free_at, std::min(arrival(rank.gradients, rank.backwards), forward_arrival(r)));
  }

  void do_step(std::size_t r, double start) {
    RankState& rank = ranks_[r];
    const ChunkTimes& times = times_.chunks[r];
    std::vector<parallel::Step>& steps = result_.steps[r];
    if (arrival(rank.gradients, rank.backwards) <= start) {
      rank.free_at = start + times.backward_input;
      if (r > 0) ranks_[r - 1].gradients.push_back(rank.free_at + times_.transfer);
      steps.push_back({StepKind::backward_input, 0, rank.backwards++});
    } else if (forward_arrival(r) <= start) {
      rank.free_at = start + times.forward;
      if (r + 1 < ranks_.size()) {
        ranks_[r + 1].activations.push_back(rank.free_at + times_.transfer);
      } else {
        rank.gradients.push_back(rank.free_at);
      }
      steps.push_back({StepKind::forward, 0, rank.forwards++});
    } else {
      rank.free_at = start + times.backward_weight;
      steps.push_back({StepKind::backward_weight, 0, rank.weights++});
    }
  }

  int m_, in_flight_;
  double kept_share_;
  const ScheduleTimes& times_;
  std::vector<RankState> ranks_;
  parallel::Schedule result_;
};

parallel::Schedule schedule_of(const PublishedRun& run) {
  const auto made = [&](ScheduleKind kind) {
    return parallel::make_schedule(kind, run.pp, run.micro_batches(), run.chunks);
  };
  switch (run.schedule) {
    case PublishedSchedule::gpipe:
      return made(ScheduleKind::gpipe);
    case PublishedSchedule::zero_bubble_1p:
      return made(ScheduleKind::zero_bubble);  // ZB-1p's bubble is that of ZB-H1
    default:
      return made(run.chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_forward_one_backward);
  }
}

/// Share of a layer's activations that its backward of weights needs, if the scores are kept: 32 / (34 + 5 a s / h) (Qi
/// et al. 2023, table 1).
double kept_share(const PublishedRun& run) {
  return 32 / (34 + 5 * static_cast<double>(run.heads * run.sequence) / static_cast<double>(run.hidden));
}

}  // namespace

parallel::Schedule zero_bubble_schedule(int stages, int micro_batches, int in_flight, double kept_share,
                                        const ScheduleTimes& times) {
  return AutomaticScheduler(stages, micro_batches, in_flight, kept_share, times).run();
}

double schedule_time(const PublishedRun& run, const ScheduleTimes& times) {
  if (run.schedule != PublishedSchedule::zero_bubble_2p) return simulate(schedule_of(run), times).makespan;
  const parallel::Schedule schedule =
      zero_bubble_schedule(run.pp, run.micro_batches(), 2 * run.pp, kept_share(run), times);
  double longest = 0;
  for (const std::vector<TimedStep>& steps : simulate(schedule, times).ranks) {
    longest = std::max(longest, steps.back().end - steps.front().start);
  }
  return longest;
}

}  // namespace trireme::plan
