#include "src/plan/search/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

using model::RecomputeGranularity;
using parallel::DataSharding;
using parallel::divisors;
using parallel::ProcessGrid;
using parallel::ScheduleKind;

constexpr std::int64_t min_context_positions = 2048;
constexpr std::int64_t max_micro_batch_size = 64;
constexpr int max_chunks = 8;
constexpr int row_chunk_counts[] = {1, 2, 4};

void check_given(const SearchSpace& space) {
  for (const auto& [size, field] : {std::pair{space.tensor, "<tensor_model_parallel_size>"},
                                    {space.pipeline, "<pipeline_model_parallel_size>"},
                                    {space.context, "<context_parallel_size>"},
                                    {space.data, "<data_parallel_size>"}}) {
    TRIREME_CHECK(!size || space.world_size % *size == 0, ConfigError, "{} {}: {} ranks do not divide by it", field,
                  size.value_or(0), space.world_size);
  }
  const int tensor = space.tensor.value_or(1), node = space.ranks_per_node;
  TRIREME_CHECK(node % tensor == 0 || tensor % node == 0, ConfigError,
                "<tensor_model_parallel_size> {}: tensor groups would lie askew on nodes of {} ranks; choose a divisor "
                "or a multiple",
                tensor, node);
}

/// Returns the reason why the layers cannot be distributed over `stages` ranks; empty if they can.
std::string undivided_layers(const SearchSpace& space, int stages) {
  const int layers = space.base.model.layers;
  try {
    parallel::PipelineLayout::of(layers, stages, space.base.execution.parallel.pipeline);
    return "";
  } catch (const ConfigError& error) {
    return space.pipeline ? error.what() : fmt::format("{} layers do not divide by the pipeline ranks", layers);
  }
}

/// Returns the rule that excludes all layouts of a grid; empty if none.
std::string broken_rule(const SearchSpace& space, const ProcessGrid& grid) {
  const model::ModelConfig& model = space.base.model;
  const std::int64_t s = space.base.execution.sequence_length, batch = space.base.options.global_batch_size;
  const int t = grid.tensor_size(), p = grid.pipeline_size(), c = grid.context_size();
  if (!space.tensor && t > space.ranks_per_node) return "tensor groups on several nodes";
  if (model.heads % t != 0 || model.ffn_hidden % t != 0 || model.kv_heads() % t != 0) {
    return fmt::format(
        "{} attention heads ({} of keys and values) and {} feed-forward columns do not divide by the "
        "tensor ranks",
        model.heads, model.kv_heads(), model.ffn_hidden);
  }
  if (std::string reason = undivided_layers(space, p); !reason.empty()) return reason;
  if (c > 1 && s % (2 * c) != 0) return fmt::format("sequences of {} do not divide by the context ranks", s);
  if (c > 1 && !space.context && s / c < min_context_positions) {
    return fmt::format("context ranks with fewer than {} positions", min_context_positions);
  }
  if (batch % grid.data_size() != 0)
    return fmt::format("a global batch of {} does not divide by the data ranks", batch);
  return "";
}

std::vector<std::int64_t> micro_batch_sizes(const SearchSpace& space, std::int64_t samples) {
  if (space.micro_batch_size) return {*space.micro_batch_size};
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= std::min(samples, max_micro_batch_size); size *= 2) {
    if (samples % size == 0) sizes.push_back(size);
  }
  return sizes;
}

/// Distributions of the layers: the given one, or equal chunks.
std::vector<parallel::PipelineSplit> splits(const SearchSpace& space, int stages) {
  const parallel::PipelineSplit& given = space.base.execution.parallel.pipeline;
  const bool one_chunk = stages == 1 || (space.schedule && *space.schedule != ScheduleKind::interleaved);
  if (one_chunk || given != parallel::PipelineSplit()) return {given};
  std::vector<parallel::PipelineSplit> equal = {given};
  for (const int n : divisors(space.base.model.layers / stages)) {
    if (n > 1 && n <= max_chunks) equal.push_back({.chunks = n});
  }
  return equal;
}

std::vector<ScheduleKind> schedules(const SearchSpace& space, int stages, int chunks) {
  if (space.schedule) return {*space.schedule};
  if (chunks > 1) return {ScheduleKind::interleaved};
  if (stages == 1) return {ScheduleKind::one_forward_one_backward};
  return {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble};
}

std::vector<RecomputeGranularity> recomputations(const SearchSpace& space) {
  if (space.recomputation) return {*space.recomputation};
  return {RecomputeGranularity::none, RecomputeGranularity::selective, RecomputeGranularity::full};
}

std::vector<DataSharding> shardings(const SearchSpace& space, const ProcessGrid& grid) {
  if (space.sharding) return {*space.sharding};
  if (grid.gradient_size() == 1) return {DataSharding::none};
  return {DataSharding::optimizer, DataSharding::optimizer_and_gradients};
}

/// Numbers of ranks that can split each expert of a grid: the tensor ranks, or one, which keeps products large.
std::vector<int> expert_tensor_sizes(const SearchSpace& space, const ProcessGrid& grid) {
  const int t = grid.tensor_size();
  if (space.expert_tensor) return {*space.expert_tensor};
  const bool divides = space.base.execution.sequence_length / grid.context_size() % t == 0;
  return t > 1 && divides && space.base.model.experts.any() ? std::vector{t, 1} : std::vector{t};
}

/// Numbers of ranks that can divide the experts of a grid, in increasing order, if `splits` ranks split each.
std::vector<int> expert_sizes(const SearchSpace& space, const ProcessGrid& grid, int splits) {
  if (grid.stage_size() % splits != 0) return {};
  const std::int64_t experts = space.base.model.experts.count;
  std::vector<int> sizes = divisors(grid.stage_size() / splits);
  std::erase_if(sizes, [&](int size) { return space.expert ? size != *space.expert : experts % size != 0; });
  return sizes;
}

ProcessGrid with_experts(const ProcessGrid& grid, int expert_size, int splits) {
  return {grid.world_size(),
          grid.tensor_size(),
          grid.pipeline_size(),
          grid.context_size(),
          grid.data_size(),
          expert_size,
          splits};
}

/// The grid with the most expert ranks in a node, and with the most of all, which need least memory; empty if the given
/// ranks do not divide a stage.
std::vector<ProcessGrid> expert_divisions(const SearchSpace& space, const ProcessGrid& grid) {
  if (!space.base.model.experts.any() && !space.expert && !space.expert_tensor) return {grid};
  std::vector<ProcessGrid> grids;
  for (const int splits : expert_tensor_sizes(space, grid)) {
    const std::vector<int> sizes = expert_sizes(space, grid, splits);
    if (sizes.empty()) continue;
    int in_node = sizes.front();
    for (const int size : sizes) {
      if (size * splits <= space.ranks_per_node) in_node = size;
    }
    grids.push_back(with_experts(grid, in_node, splits));
    if (sizes.back() != in_node) grids.push_back(with_experts(grid, sizes.back(), splits));
  }
  return grids;
}

std::string undivided_experts(const SearchSpace& space) {
  std::string ranks;
  if (space.expert) ranks = fmt::format("{} ranks of <expert_model_parallel_size>", *space.expert);
  if (space.expert_tensor) {
    ranks +=
        fmt::format("{}{} ranks of <expert_tensor_parallel_size>", space.expert ? " x the " : "", *space.expert_tensor);
  }
  return fmt::format("the ranks of a stage do not divide by the {}", ranks);
}

/// Returns whether the program can run the job in `count` chunks of rows.
bool runs_in_row_chunks(const Job& job, int count) {
  const train::ExecutionConfig& e = job.execution;
  const bool sequence_parallel = e.parallel.sequence_parallel;
  const std::int64_t rows =
      e.sequence_length / job.grid.context_size() / (sequence_parallel ? job.grid.tensor_size() : 1);
  return count == 1 ||
         (job.grid.tensor_size() > 1 && rows % count == 0 && !(sequence_parallel && job.grid.folds_experts()));
}

/// Sets options without a trade-off: sequence parallelism, and overlaps.
void set_defaults(const SearchSpace& space, Job& job) {
  train::ParallelConfig& parallel = job.execution.parallel;
  const ProcessGrid& grid = job.grid;
  const bool divides = job.execution.sequence_length / grid.context_size() % grid.tensor_size() == 0;
  const bool is_distributed = job.execution.recomputation.distribute;  // excludes sequence parallelism
  parallel.sequence_parallel = space.sequence_parallel.value_or(grid.tensor_size() > 1 && divides && !is_distributed);
  const int row_chunks = space.row_chunks.value_or(1);
  parallel.row_chunks = runs_in_row_chunks(job, row_chunks) ? row_chunks : 1;
  parallel.overlap_p2p = space.overlap_p2p.value_or(grid.pipeline_size() > 1);
  parallel::DataParallelOptions& data = parallel.data_parallel;
  data.overlap_reduce = space.overlap_reduce.value_or(grid.gradient_size() > 1);
  data.overlap_gather = space.overlap_gather.value_or(grid.gradient_size() > 1 && data.sharding != DataSharding::none);
}

/// Adds all layouts of a grid. Sets the reason if it has none.
void add_layouts(const SearchSpace& space, const ProcessGrid& grid, std::vector<Job>& jobs, std::string& reason) {
  const std::int64_t samples = space.base.options.global_batch_size / grid.data_size();
  const int stages = grid.pipeline_size();
  for (const std::int64_t size : micro_batch_sizes(space, samples)) {
    if (samples % size != 0) {
      reason = fmt::format("a global batch of {} does not divide by micro-batch size x data ranks",
                           space.base.options.global_batch_size);
      continue;
    }
    if (samples / size < stages && !(space.micro_batch_size && space.pipeline)) {
      reason = "fewer micro-batches than pipeline stages";
      continue;
    }
    for (const parallel::PipelineSplit& split : splits(space, stages)) {
      const int chunks = parallel::PipelineLayout::of(space.base.model.layers, stages, split).chunks;
      for (const ScheduleKind schedule : schedules(space, stages, chunks)) {
        for (const RecomputeGranularity granularity : recomputations(space)) {
          for (const DataSharding sharding : shardings(space, grid)) {
            Job job = space.base;
            job.grid = grid;
            job.execution.micro_batch_size = size;
            job.execution.parallel.pipeline = split;
            job.execution.parallel.schedule = schedule;
            job.execution.recomputation.granularity = granularity;
            job.execution.parallel.data_parallel.sharding = sharding;
            set_defaults(space, job);
            jobs.push_back(std::move(job));
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<GridCandidates> candidates(const SearchSpace& space, std::vector<Rejection>& rejections) {
  check_given(space);
  std::vector<GridCandidates> result;
  const auto chosen = [](const std::optional<int>& given, int value) { return !given || *given == value; };
  const std::vector<int> all = divisors(space.world_size);
  for (const int t : all) {
    for (const int p : divisors(space.world_size / t)) {
      for (const int c : divisors(space.world_size / t / p)) {
        const int d = space.world_size / t / p / c;
        if (!chosen(space.tensor, t) || !chosen(space.pipeline, p) || !chosen(space.context, c) ||
            !chosen(space.data, d)) {
          continue;
        }
        const ProcessGrid grid(space.world_size, t, p, c, d);
        const std::vector<ProcessGrid> divisions = expert_divisions(space, grid);
        std::string reason = broken_rule(space, grid);
        if (divisions.empty()) reason = undivided_experts(space);
        GridCandidates found{space.expert && !divisions.empty() ? divisions.front() : grid, {}};
        if (reason.empty()) {
          for (const ProcessGrid& divided : divisions) add_layouts(space, divided, found.jobs, reason);
        }
        if (found.jobs.empty()) {
          rejections.push_back({grid, reason});
        } else {
          result.push_back(std::move(found));
        }
      }
    }
  }
  TRIREME_CHECK(!result.empty() || !rejections.empty(), ConfigError,
                "{} ranks do not make a grid of the sizes given: tensor x pipeline x context x data ranks must be {}",
                space.world_size, space.world_size);
  return result;
}

std::vector<Job> variants(const SearchSpace& space, const Job& job) {
  std::vector<Job> result;
  const ProcessGrid& grid = job.grid;
  const auto add = [&](const auto& change) {
    Job other = job;
    change(other.execution.parallel);
    result.push_back(std::move(other));
  };
  if (!space.sequence_parallel && grid.tensor_size() > 1 && job.execution.parallel.sequence_parallel) {
    add([](train::ParallelConfig& p) { p.sequence_parallel = false; });
  }
  for (const int count : row_chunk_counts) {
    if (space.row_chunks || count == job.execution.parallel.row_chunks || !runs_in_row_chunks(job, count)) continue;
    add([count](train::ParallelConfig& p) { p.row_chunks = count; });
  }
  if (!space.overlap_p2p && grid.pipeline_size() > 1) {
    add([](train::ParallelConfig& p) { p.overlap_p2p = !p.overlap_p2p; });
  }
  for (const int splits : job.model.experts.any() ? expert_tensor_sizes(space, grid) : std::vector<int>()) {
    for (const int size : expert_sizes(space, grid, splits)) {
      if ((size == grid.expert_size()) == (splits == grid.expert_tensor_size())) continue;  // in one axis
      add([](train::ParallelConfig&) {});
      Job& other = result.back();
      other.grid = with_experts(grid, size, splits);
      if (!runs_in_row_chunks(other, other.execution.parallel.row_chunks)) other.execution.parallel.row_chunks = 1;
    }
  }
  if (grid.gradient_size() == 1) return result;
  if (!space.sharding && job.execution.parallel.data_parallel.sharding != DataSharding::none && !space.overlap_gather) {
    add([](train::ParallelConfig& p) {
      p.data_parallel.sharding = DataSharding::none;
      p.data_parallel.overlap_gather = false;
    });
  }
  if (!space.overlap_reduce) {
    add([](train::ParallelConfig& p) { p.data_parallel.overlap_reduce = !p.data_parallel.overlap_reduce; });
  }
  if (!space.overlap_gather && job.execution.parallel.data_parallel.sharding != DataSharding::none) {
    add([](train::ParallelConfig& p) { p.data_parallel.overlap_gather = !p.data_parallel.overlap_gather; });
  }
  return result;
}

}  // namespace trireme::plan
