#pragma once

#include "src/plan/search/candidates.hpp"
#include "src/plan/search/job_costs.hpp"

namespace trireme::plan {

/// The fastest layout of a grid that fits into memory.
struct RankedGrid {
  Job job;
  StepPrediction step;
  std::vector<train::MemoryEstimate> memory;  ///< that of the fullest rank; of the first grid, that of every stage

  std::size_t max_bytes() const;
};

struct SearchResult {
  std::vector<RankedGrid> grids;  ///< fastest first
  std::vector<Rejection> rejections;
  int layouts = 0;    ///< layouts considered
  int predicted = 0;  ///< layouts whose step was predicted
  int rehearsed = 0;  ///< rehearsals of a rank's memory
  double limit_bytes = 0;
};

/// Searches the `wanted` fastest grids. A layout is predicted if the lower bound of its fullest rank fits; memory is
/// rehearsed from the fastest on. Found layouts are then improved one axis at a time (`variants`). Ties keep the order
/// of `candidates`, so results are deterministic.
SearchResult search(const SearchSpace& space, JobCosts& costs, int wanted);

/// The prediction of one job alone, with the memory of every stage.
RankedGrid predict_one(const Job& job, JobCosts& costs);

}  // namespace trireme::plan
