#include "tests/fakes/timeline.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace fake_cuda {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Progress of a step.
struct Work {
  const Step* step;
  double ready_us = never;
  double begin_us = never;
  double end_us = never;  // known when it has ended
  int waiting;            // blocks without a multiprocessor so far
  int running = 0;
  bool is_ready = false;
  bool has_ended = false;
};

/// Blocks that end together.
struct Running {
  double end_us;
  std::size_t work;
  int blocks;
};

class Simulation {
 public:
  explicit Simulation(const Trace& trace) {
    for (const Step& step : trace) works_.push_back({.step = &step, .waiting = step.demand.blocks});
  }

  std::vector<Work> run() {
    for (;;) {
      while (advance()) {
      }
      dispatch();
      const double next_us = next_time();
      if (next_us == never) return works_;
      now_us_ = next_us;
      end_blocks();
    }
  }

 private:
  /// Time at which a step is ready, if all before it have ended.
  double ready_time(const Work& work) {
    double ready_us = 0;
    const auto wait_for = [&](int step, double delay_us) {
      const Work& other = works_[static_cast<std::size_t>(step)];
      ready_us = std::max(ready_us, other.has_ended ? other.end_us + delay_us : never);
    };
    if (work.step->before >= 0) wait_for(work.step->before, 0);
    for (const int event : work.step->events) wait_for(event, costs.event_us);
    return ready_us;
  }

  /// Finds the steps that are ready; those without blocks end at once. Returns whether any step ended.
  bool advance() {
    bool ended = false;
    for (Work& work : works_) {
      if (work.is_ready) continue;
      work.ready_us = ready_time(work);
      if (work.ready_us > now_us_) continue;
      work.is_ready = true;
      if (work.waiting > 0) continue;
      work.begin_us = work.end_us = work.ready_us;
      work.has_ended = ended = true;
    }
    return ended;
  }

  /// Gives the free multiprocessors to waiting blocks.
  void dispatch() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      if (works_[i].is_ready && works_[i].waiting > 0) order.push_back(i);
    }
    std::ranges::stable_sort(
        order, {}, [this](std::size_t i) { return std::tuple(works_[i].step->priority, works_[i].ready_us); });
    for (const std::size_t i : order) {
      Work& work = works_[i];
      const int blocks = std::min(work.waiting, free_);
      if (blocks == 0) continue;
      free_ -= blocks;
      work.waiting -= blocks;
      work.running += blocks;
      const double end_us = now_us_ + work.step->demand.block_us;
      if (!work.step->demand.is_collective) {
        work.begin_us = std::min(work.begin_us, now_us_);
        running_.push_back({end_us, i, blocks});
      } else if (work.waiting == 0) {
        work.begin_us = now_us_;
        running_.push_back({end_us, i, work.running});
      }
    }
  }

  double next_time() const {
    double next_us = never;
    for (const Running& blocks : running_) next_us = std::min(next_us, blocks.end_us);
    for (const Work& work : works_) {
      if (!work.is_ready) next_us = std::min(next_us, work.ready_us);
    }
    return next_us;
  }

  void end_blocks() {
    std::erase_if(running_, [this](const Running& blocks) {
      if (blocks.end_us > now_us_) return false;
      Work& work = works_[blocks.work];
      free_ += blocks.blocks;
      work.running -= blocks.blocks;
      if (work.running == 0 && work.waiting == 0) {
        work.end_us = now_us_;
        work.has_ended = true;
      }
      return true;
    });
  }

  int free_ = multiprocessors;
  std::vector<Work> works_;
  std::vector<Running> running_;
  double now_us_ = 0;
};

}  // namespace

Demand product_demand(std::uint64_t m, std::uint64_t n, std::uint64_t k, int target) {
  const auto parts = [](std::uint64_t extent, std::uint64_t part) { return (extent + part - 1) / part; };
  const std::uint64_t tiles = parts(m, costs.tile) * parts(n, costs.tile);
  const std::uint64_t blocks = std::min<std::uint64_t>(tiles, target > 0 ? target : multiprocessors);
  return {static_cast<int>(blocks),
          static_cast<double>(parts(tiles, std::max<std::uint64_t>(blocks, 1)) * k) * costs.us_per_tile_k};
}

Demand collective_demand(int blocks, std::size_t bytes) {
  return {blocks, static_cast<double>(bytes) / costs.bytes_per_us, true};
}

double Span::overlap_us(const Span& other) const {
  return std::max(0.0, std::min(end_us, other.end_us) - std::max(begin_us, other.begin_us));
}

std::vector<double> ends_us(const Trace& trace) {
  std::vector<double> ends;
  for (const Work& work : Simulation(trace).run()) ends.push_back(work.end_us);
  return ends;
}

Timeline simulate(const Trace& trace) {
  Timeline timeline;
  for (const Work& work : Simulation(trace).run()) {
    const auto& [name, stream, priority, demand, before, events] = *work.step;
    if (demand.blocks == 0) continue;
    timeline.push_back({name, stream, demand.blocks, work.ready_us, work.begin_us, work.end_us});
  }
  return timeline;
}

}  // namespace fake_cuda
