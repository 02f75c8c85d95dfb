#pragma once

#include <string>
#include <vector>

#include "src/plan/search/search.hpp"

namespace trireme::io {

/// A finished search, or the prediction of one layout.
struct PlanReport {
  const plan::Cluster& cluster;
  int nodes = 1;
  const plan::SearchResult& result;
  std::vector<std::string> train_options;  ///< command line options of the best layout
};

/// Returns {"cluster", "nodes", "ranks", "memory_limit_bytes", "layouts", "predicted", "rehearsed", "train_options",
/// "grids": [...], "rejected": [{"tensor", "pipeline", "context", "data", "reason", "amount"}]}. A grid holds its axes
/// and options, "memory_bytes" per stage, "step_ms", "tokens_per_second", "tflops_per_rank" (model FLOPs, no
/// recomputation), "mfu", and "parts_ms", which add up to the step. "hidden_ms" overlaps with work.
std::string plan_json(const PlanReport& report);

}  // namespace trireme::io
