#include "src/plan/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trireme::plan {
namespace {

bool is_cpu(const Cluster& cluster) { return cluster.cores_per_node > 0; }

std::unique_ptr<Backend> device_of(const Cluster& cluster) {
  if (is_cpu(cluster)) return make_backend(BackendChoice::cpu, 1);
  return std::make_unique<DeviceStandIn>(static_cast<std::size_t>(cluster.device.memory_gb * 1e9));
}

/// A layout with its time.
struct Timed {
  const Job* job;
  double step_ms;
};

/// A grid whose layouts are timed, fastest first.
struct TimedGrid {
  const GridCandidates* candidates;
  std::vector<Timed> layouts;
  double least_bytes = std::numeric_limits<double>::infinity();  ///< needed by a layout that does not fit
  std::string fault;                                             ///< reason why the program refuses layouts
};

class Search {
 public:
  Search(const SearchSpace& space, JobCosts& costs) : space_(space), costs_(costs) {
    result_.limit_bytes = costs.limit_bytes();
  }

  SearchResult run(int wanted) {
    const std::vector<GridCandidates> all = candidates(space_, result_.rejections);
    std::vector<TimedGrid> timed;
    for (const GridCandidates& grid : all) {
      TimedGrid times = time_layouts(grid);
      if (times.layouts.empty()) {
        reject(times);
      } else {
        timed.push_back(std::move(times));
      }
    }
    std::ranges::stable_sort(timed, {}, [](const TimedGrid& grid) { return grid.layouts.front().step_ms; });
    for (TimedGrid& grid : timed) {
      // More than wanted: by `improve`, a grid may overtake others. A found layout may be slower than a later grid's
      // fastest.
      const bool has_enough = std::ssize(result_.grids) >= 2 * wanted;
      if (!has_enough || grid.layouts.front().step_ms < slowest_wanted(wanted)) {
        find_fitting(grid);
      } else {
        slower_.push_back(&grid);
      }
    }
    std::ranges::stable_sort(result_.grids, {}, [](const RankedGrid& grid) { return grid.step.step_ms; });
    reject_beyond(wanted);
    for (const TimedGrid* grid : slower_) reject_as_slower(grid->candidates->grid, grid->layouts.front().step_ms);
    if (!result_.grids.empty()) rehearse_all_stages(result_.grids.front());
    return std::move(result_);
  }

 private:
  TimedGrid time_layouts(const GridCandidates& grid) {
    TimedGrid times{.candidates = &grid, .layouts = {}, .fault = {}};
    for (const Job& job : grid.jobs) {
      ++result_.layouts;
      try {
        const double bytes = costs_.min_bytes(job);
        if (bytes > result_.limit_bytes) {
          times.least_bytes = std::min(times.least_bytes, bytes);
          continue;
        }
        ++result_.predicted;
        times.layouts.push_back({&job, costs_.predict(job).step_ms});
      } catch (const ConfigError& error) {
        times.fault = error.what();
      }
    }
    std::ranges::stable_sort(times.layouts, {}, &Timed::step_ms);
    return times;
  }

  void reject(const TimedGrid& grid) {
    const parallel::ProcessGrid& ranks = grid.candidates->grid;
    if (std::isfinite(grid.least_bytes)) {
      result_.rejections.push_back({ranks, "memory", grid.least_bytes, Rejection::Kind::memory});
    } else {
      result_.rejections.push_back({ranks, grid.fault});
    }
  }

  /// Returns the step's time of the slowest grid wanted so far.
  double slowest_wanted(int wanted) const {
    std::vector<double> times;
    for (const RankedGrid& grid : result_.grids) times.push_back(grid.step.step_ms);
    std::ranges::sort(times);
    return times.at(static_cast<std::size_t>(wanted) - 1);
  }

  /// Rejects the slowest grids, beyond this number.
  void reject_beyond(int wanted) {
    while (std::ssize(result_.grids) > wanted) {
      reject_as_slower(result_.grids.back().job.grid, result_.grids.back().step.step_ms);
      result_.grids.pop_back();
    }
  }
  void reject_as_slower(const parallel::ProcessGrid& grid, double step_ms) {
    const double share = step_ms / result_.grids.front().step.step_ms - 1;
    result_.rejections.push_back({grid, "slower than the best", share, Rejection::Kind::slower});
  }

  train::MemoryEstimate rehearse(const Job& job, int stage) {
    ++result_.rehearsed;
    return costs_.memory(job, stage);
  }

  /// Returns the memory of the fullest rank, which belongs to the first or last stage if all chunks have the same
  /// layers. Stops at the first stage that does not fit.
  train::MemoryEstimate fullest(const Job& job) {
    train::MemoryEstimate most = rehearse(job, 0);
    const int last = job.grid.pipeline_size() - 1;
    for (int stage = has_equal_chunks(job) ? std::max(1, last) : 1; stage <= last && fits(most); ++stage) {
      const train::MemoryEstimate other = rehearse(job, stage);
      if (other.total() > most.total()) most = other;
    }
    return most;
  }
  bool fits(const train::MemoryEstimate& memory) const {
    return static_cast<double>(memory.total()) <= result_.limit_bytes && fits_on_host(memory);
  }
  bool fits_on_host(const train::MemoryEstimate& memory) const {
    return static_cast<double>(memory.host()) <= costs_.host_limit_bytes();
  }

  void find_fitting(TimedGrid& grid) {
    for (const Timed& layout : grid.layouts) {
      const train::MemoryEstimate memory = fullest(*layout.job);
      if (!fits_on_host(memory)) {
        grid.fault = fmt::format("host memory, more than {:.0f} GB a rank", costs_.host_limit_bytes() / 1e9);
        continue;
      }
      if (!fits(memory)) {
        grid.least_bytes = std::min(grid.least_bytes, static_cast<double>(memory.total()));
        continue;
      }
      RankedGrid found{*layout.job, costs_.predict(*layout.job), {memory}};
      improve(found);
      result_.grids.push_back(std::move(found));
      return;
    }
    reject(grid);
  }

  /// Changes one axis at a time if that is faster and fits.
  void improve(RankedGrid& found) {
    for (bool better = true; better;) {
      better = false;
      for (Job& job : variants(space_, found.job)) {
        ++result_.layouts;
        ++result_.predicted;
        StepPrediction step;
        try {
          step = costs_.predict(job);
        } catch (const ConfigError&) {  // the program does not support this change
          continue;
        }
        if (step.step_ms >= found.step.step_ms * (1 - min_gain)) continue;
        const train::MemoryEstimate memory = fullest(job);
        if (!fits(memory)) continue;
        found = {std::move(job), std::move(step), {memory}};
        better = true;
        break;
      }
    }
  }

  void rehearse_all_stages(RankedGrid& grid) {
    grid.memory.clear();
    for (int stage = 0; stage < grid.job.grid.pipeline_size(); ++stage) {
      grid.memory.push_back(rehearse(grid.job, stage));
    }
  }

  static constexpr double min_gain = 1e-3;

  const SearchSpace& space_;
  JobCosts& costs_;
  SearchResult result_;
  std::vector<const TimedGrid*> slower_;
};

}  // namespace

ClusterCosts::ClusterCosts(const Cluster& cluster) : predictor_(cluster), device_(device_of(cluster)) {}
ClusterCosts::~ClusterCosts() = default;

double ClusterCosts::limit_bytes() const {
  constexpr double share = 0.95;
  const Cluster& cluster = predictor_.cluster();
  // A node's memory is that of all of its cores.
  const double devices = is_cpu(cluster) ? static_cast<double>(cluster.cores_per_node) / cluster.ranks_per_node : 1;
  return share * cluster.device.memory_gb * 1e9 * devices;
}

std::size_t ClusterCosts::layer_bytes(const Job& job) {
  const train::ExecutionConfig& e = job.execution;
  const std::string key = fmt::format("{} {} {} {} {} {} {}", job.grid.tensor_size(), job.grid.context_size(),
                                      job.grid.expert_size(), job.grid.expert_tensor_size(), e.micro_batch_size,
                                      static_cast<int>(e.recomputation.granularity), e.parallel.sequence_parallel);
  const auto known = layer_bytes_.find(key);
  if (known != layer_bytes_.end()) return known->second;
  const std::size_t bytes = train::layer_activations(*device_, job.model, e, job.grid).kept;
  return layer_bytes_[key] = bytes;
}

double ClusterCosts::min_bytes(const Job& job) {
  const parallel::PipelineLayout layout = layout_of(job);
  const train::MinMemory minimum = train::min_memory(job.model, job.execution, job.grid, job.options.optimizer);
  const double parameters = minimum.parameters / job.grid.world_size();
  if (!has_equal_chunks(job)) return parameters;
  const int chunks = in_flight(schedule_of(job), layout.stages, layout.chunks, micro_batches_of(job));
  const int layers = layout.layers.front();
  const int kept = layers - model::offloaded_layers(job.execution.recomputation, layers);
  return parameters + static_cast<double>(layer_bytes(job)) * kept * chunks;
}

double ClusterCosts::host_limit_bytes() const {
  constexpr double share = 0.8;
  const Cluster& cluster = predictor_.cluster();
  return share * cluster.host.memory_gb * 1e9 / cluster.ranks_per_node;
}

train::MemoryEstimate ClusterCosts::memory(const Job& job, int stage) {
  train::MemoryEstimate memory = train::estimate_memory(*device_, job.model, job.execution, job.options, job.grid,
                                                        job.grid.rank({.pipeline = stage}));
  if (is_cpu(predictor_.cluster())) {
    memory.activations += std::exchange(memory.host_activations, 0);
    memory.optimizer += std::exchange(memory.host_optimizer, 0);
  }
  return memory;
}

int in_flight(parallel::ScheduleKind kind, int stages, int chunks, int micro_batches) {
  switch (kind) {
    case parallel::ScheduleKind::gpipe:
      return micro_batches;
    case parallel::ScheduleKind::interleaved:
      return std::min(2 * (stages - 1) + (chunks - 1) * stages + 1, micro_batches * chunks);
    default:
      return std::min(stages, micro_batches);
  }
}

std::size_t RankedGrid::max_bytes() const {
  std::size_t bytes = 0;
  for (const train::MemoryEstimate& stage : memory) bytes = std::max(bytes, stage.total());
  return bytes;
}

SearchResult search(const SearchSpace& space, JobCosts& costs, int wanted) {
  SearchResult result = Search(space, costs).run(wanted);
  const optim::OptimizerOptions& optimizer = space.base.options.optimizer;
  if (!result.grids.empty() || optimizer.offload.fraction > 0 || optimizer.kind == optim::OptimizerKind::muon) {
    return result;
  }
  SearchSpace offloaded = space;
  offloaded.base.options.optimizer.offload.fraction = 1;
  SearchResult second = Search(offloaded, costs).run(wanted);
  return second.grids.empty() ? result : second;
}

RankedGrid predict_one(const Job& job, JobCosts& costs) {
  RankedGrid grid{job, costs.predict(job), {}};
  for (int stage = 0; stage < job.grid.pipeline_size(); ++stage) grid.memory.push_back(costs.memory(job, stage));
  return grid;
}

}  // namespace trireme::plan
