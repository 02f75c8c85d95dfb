#include "tests/fakes/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace fake_cuda {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Progress of a step.
struct Work {
  const Step* step;
  std::size_t rank;
  double ready_us = never;
  double begin_us = never;
  double end_us = never;  // known when it has ended, of a collective when its transfer begins
  int waiting;            // blocks without a multiprocessor so far
  int running = 0;
  bool is_ready = false;
  bool has_ended = false;
};

/// Blocks that began together.
struct Running {
  double end_us;
  std::size_t work;
  int blocks;
};

class Simulation {
 public:
  explicit Simulation(const std::vector<Trace>& ranks) : free_(ranks.size(), multiprocessors) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      first_.push_back(works_.size());
      std::map<int, int> operations;  // so far, by communicator
      for (const Step& step : ranks[rank]) {
        if (step.demand.group != 0) {
          collectives_[{step.demand.group, operations[step.demand.group]++}].push_back(works_.size());
        }
        works_.push_back({.step = &step, .rank = rank, .waiting = step.demand.blocks});
      }
    }
  }

  std::vector<double> ends_us() {
    run();
    std::vector<double> ends;
    for (const Work& work : works_) ends.push_back(work.end_us);
    return ends;
  }

  std::vector<Timeline> run() {
    for (;;) {
      while (advance()) {
      }
      dispatch();
      start_transfers();
      const double next_us = next_time();
      if (next_us == never) break;
      now_us_ = next_us;
      end_blocks();
    }
    check_all_ended();
    return timelines();
  }

 private:
  Work& at(const Work& like, int step) { return works_[first_[like.rank] + static_cast<std::size_t>(step)]; }

  /// Time at which a step is ready, if all before it have ended.
  double ready_time(const Work& work) {
    double ready_us = work.step->before < 0                   ? 0
                      : at(work, work.step->before).has_ended ? at(work, work.step->before).end_us
                                                              : never;
    for (const int event : work.step->events) {
      const Work& other = at(work, event);
      ready_us = std::max(ready_us, other.has_ended ? other.end_us + costs.event_us : never);
    }
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
      const int blocks = std::min(work.waiting, free_[work.rank]);
      if (blocks == 0) continue;
      free_[work.rank] -= blocks;
      work.waiting -= blocks;
      work.running += blocks;
      if (work.step->demand.group == 0) {
        work.begin_us = std::min(work.begin_us, now_us_);
        running_.push_back({now_us_ + work.step->demand.block_us, i, blocks});
      } else if (work.waiting == 0) {
        work.begin_us = now_us_;
      }
    }
  }

  /// Starts the transfers of collectives whose blocks all run, on all ranks.
  void start_transfers() {
    std::erase_if(collectives_, [this](const auto& collective) {
      const std::vector<std::size_t>& ranks = collective.second;
      const auto runs = [this](std::size_t i) { return works_[i].is_ready && works_[i].waiting == 0; };
      if (!std::ranges::all_of(ranks, runs)) return false;
      for (const std::size_t i : ranks) {
        running_.push_back({now_us_ + works_[i].step->demand.block_us, i, works_[i].running});
      }
      return true;
    });
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
      free_[work.rank] += blocks.blocks;
      work.running -= blocks.blocks;
      if (work.running == 0 && work.waiting == 0) {
        work.end_us = now_us_;
        work.has_ended = true;
      }
      return true;
    });
  }

  void check_all_ended() const {
    std::string text;
    for (const Work& work : works_) {
      if (work.has_ended || !work.is_ready) continue;
      text += fmt::format("; rank {}: {} on stream {} has {} of {} blocks", work.rank, work.step->name,
                          work.step->stream, work.running, work.step->demand.blocks);
    }
    if (!text.empty()) throw std::logic_error(fmt::format("the GPUs hang after {:g} us{}", now_us_, text));
  }

  std::vector<Timeline> timelines() const {
    std::vector<Timeline> timelines(free_.size());
    for (const Work& work : works_) {
      if (work.step->demand.blocks == 0) continue;
      timelines[work.rank].push_back(
          {work.step->name, work.step->stream, work.step->demand.blocks, work.ready_us, work.begin_us, work.end_us});
    }
    return timelines;
  }

  std::vector<int> free_;  // multiprocessors, by rank
  std::vector<std::size_t> first_;
  std::vector<Work> works_;
  std::map<std::pair<int, int>, std::vector<std::size_t>> collectives_;  // by communicator and number: those to start
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

Demand collective_demand(int group, int blocks, std::size_t bytes) {
  return {blocks, static_cast<double>(bytes) / costs.bytes_per_us, group};
}

double Span::overlap_us(const Span& other) const {
  return std::max(0.0, std::min(end_us, other.end_us) - std::max(begin_us, other.begin_us));
}

std::vector<double> ends_us(const Trace& trace) { return Simulation({trace}).ends_us(); }

std::vector<Timeline> simulate(const std::vector<Trace>& ranks) { return Simulation(ranks).run(); }

}  // namespace fake_cuda
