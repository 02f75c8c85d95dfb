#include "cuda/cublaslt/choose.hpp"

#include <algorithm>
#include <utility>

namespace trireme::cuda {
namespace {

constexpr double warm_up_us = 2e5;
// Repeats short runs between two events: the host takes some microseconds to enqueue one.
constexpr double enough_us = 100, max_runs = 16;
constexpr int counted_rounds = 5;
constexpr double max_counted_us = 5e5;
// Noise only adds time, so the minimum is close to the true time from the first rounds on. Single runs include the
// host's enqueue time.
constexpr double far_behind_once = 2, far_behind = 1.1;

struct Contender {
  const Choice* choice;
  int runs = 1;  // number per measurement
  std::vector<double> times_us{};
  double least_us() const { return *std::ranges::min_element(times_us); }
  double median_us() const {
    std::vector<double> sorted = times_us;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
    std::ranges::nth_element(sorted, middle);
    return *middle;
  }
};

/// Runs every candidate once. Returns those that cuBLASLt accepts: it refuses some of its own suggestions.
std::vector<Contender> load(const std::vector<Choice>& candidates, const std::function<void(const Choice&)>& run) {
  std::vector<Contender> loaded;
  for (const Choice& candidate : candidates) {
    try {
      run(candidate);
      loaded.push_back({&candidate});
    } catch (const CublasError&) {
      if (loaded.empty() && &candidate == &candidates.back()) throw;
    }
  }
  return loaded;
}

void drop_far_behind(std::vector<Contender>& contenders, double factor) {
  const double best_us = std::ranges::min_element(contenders, {}, &Contender::least_us)->least_us();
  std::erase_if(contenders, [&](const Contender& one) { return one.least_us() > factor * best_us; });
}

}  // namespace

double EventTimer::time_us(CudaStream& stream, const std::function<void()>& run) {
  const std::unique_ptr<TimedEvent> begin = stream.record_time();
  run();
  const std::unique_ptr<TimedEvent> end = stream.record_time();
  stream.synchronize();
  return 1000.0 * end->ms_since(*begin);
}

void Tuner::warm_up(CudaStream& stream, const std::function<void()>& run) {
  constexpr int runs = 16;
  for (double worked_us = 0; worked_us < warm_up_us;) {
    worked_us += std::max(1.0, timer_->time_us(stream, [&] {
      for (int i = 0; i < runs; ++i) run();
    }));
  }
}

Choice Tuner::fastest(CudaStream& stream, const std::vector<Choice>& candidates,
                      const std::function<void(const Choice&)>& run) {
  std::vector<Contender> contenders = load(candidates, run);
  if (contenders.size() == 1) return *contenders.front().choice;
  stream.device().wait_for_collectives();
  if (!std::exchange(is_warm_, true)) warm_up(stream, [&] { run(*contenders.front().choice); });

  const auto measure = [&](const Contender& one) {
    const auto repeat = [&] {
      for (int i = 0; i < one.runs; ++i) run(*one.choice);
    };
    return timer_->time_us(stream, repeat);
  };
  for (Contender& one : contenders) one.times_us = {std::max(1.0, measure(one))};
  drop_far_behind(contenders, far_behind_once);
  for (Contender& one : contenders) {
    one.runs = static_cast<int>(std::clamp(enough_us / one.times_us.front(), 1.0, max_runs));
    one.times_us.clear();
  }
  double counted_us = 0;
  for (int round = 0; round < counted_rounds && contenders.size() > 1 && counted_us < max_counted_us; ++round) {
    for (Contender& one : contenders) {
      const double time_us = measure(one);
      counted_us += time_us;
      one.times_us.push_back(time_us / one.runs);
    }
    drop_far_behind(contenders, far_behind);
  }
  if (contenders.size() == 1) return *contenders.front().choice;
  return *std::ranges::min_element(contenders, {}, &Contender::median_us)->choice;
}

Choice first_that_runs(const std::vector<Choice>& candidates, const std::function<void(const Choice&)>& run) {
  for (const Choice& candidate : candidates) {
    try {
      run(candidate);
      return candidate;
    } catch (const CublasError&) {
      if (&candidate == &candidates.back()) throw;
    }
  }
  return candidates.front();
}

}  // namespace trireme::cuda
