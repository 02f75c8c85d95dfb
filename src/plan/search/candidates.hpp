#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/plan/step/step_prediction.hpp"

namespace trireme::plan {

/// Search space of layouts. An axis with a value is fixed.
struct SearchSpace {
  int world_size = 1;
  int ranks_per_node = 1;
  Job base;  ///< model, batch, and everything that is not an axis. A pipeline split fixes the chunks
  std::optional<int> tensor{}, pipeline{}, context{}, data{};
  std::optional<int> expert{};         ///< ranks over which experts are divided
  std::optional<int> expert_tensor{};  ///< ranks that split each expert
  std::optional<std::int64_t> micro_batch_size{};
  std::optional<parallel::ScheduleKind> schedule{};
  std::optional<model::RecomputeGranularity> recomputation{};
  std::optional<parallel::DataSharding> sharding{};
  std::optional<int> row_chunks{};
  std::optional<bool> sequence_parallel{}, overlap_p2p{}, overlap_reduce{}, overlap_gather{};
};

/// Layouts with the same numbers of ranks along the axes of the grid.
struct GridCandidates {
  parallel::ProcessGrid grid;  ///< with 1 expert rank, or the given number; those of the layouts may differ
  std::vector<Job> jobs;
};

/// A grid that is not proposed, and the reason.
struct Rejection {
  parallel::ProcessGrid grid;
  std::string reason;  ///< the same for many grids
  double amount = 0;   ///< amount for the reason: bytes, or a share
  enum class Kind { rule, memory, slower } kind = Kind::rule;
};

/// All grids of the space with their layouts, in a fixed order. A grid is rejected by the first of these rules that
/// holds. The given expert ranks do not divide those of a stage. Its axes do not divide the model or the batch. Its
/// tensor groups lie on several nodes. Its context ranks have fewer than 2,048 positions. It has fewer micro-batches
/// than stages. The last three do not apply to given axes. Layouts have the overlaps that cost nothing, and ZeRO with
/// several data ranks (`variants` has the others). Experts are split over the tensor ranks or complete on each of
/// theirs, and divided over the most ranks in a node and the most of all. ConfigError if a given axis fits no grid.
std::vector<GridCandidates> candidates(const SearchSpace& space, std::vector<Rejection>& rejections);

/// Layouts that differ from `job` in one axis that is not given: sequence parallelism, ranks that divide or split
/// experts, state in shards or overlaps.
std::vector<Job> variants(const SearchSpace& space, const Job& job);

}  // namespace trireme::plan
