#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/plan/cases/run_prediction.hpp"
#include "src/plan/cluster/calibration.hpp"
#include "src/plan/search/search.hpp"
#include "src/plan/timeline.hpp"

namespace trireme::io {

/// Adds the measurements in `text`, lines of JSON, to `calibration`: those of kernels_calibration and
/// kernels_gpu_bench, which have a "kernel", and of collectives_bench, which have an "operation". DataError "path:line:
/// ..." for any other line, or a field that is missing, of another type or impossible.
void add_calibration(std::string_view text, const std::string& path, plan::Calibration& calibration);

/// Reads all measurements in the files `paths`. IoError for an unreadable file.
plan::Calibration read_calibration(const std::vector<std::string>& paths);

/// A finished search, or the prediction of one layout.
struct PlanReport {
  const plan::Cluster& cluster;
  int nodes = 1;
  const plan::SearchResult& result;
  std::vector<std::string> train_options;              ///< command line options of the best layout
  std::vector<plan::EventDifference> comparison = {};  ///< comparison of the best layout with a trace, if any
};

/// Returns {"cluster", "nodes", "ranks", "memory_limit_bytes", "layouts", "predicted", "rehearsed", "train_options",
/// "grids": [...], "rejected": [{"tensor", "pipeline", "context", "data", "expert", "expert_tensor", "reason",
/// "amount"}]}. A grid holds its axes and options, "memory_bytes" per stage, "step_ms", "tokens_per_second",
/// "tflops_per_rank" (model FLOPs, no recomputation), "mfu", and "parts_ms", which add up to the step. "hidden_ms"
/// overlaps with work. With a comparison also {"comparison": [{"event", "rank", "measured_ms", "predicted_ms",
/// "measured_count", "predicted_count"}]}, the largest difference first.
std::string plan_json(const PlanReport& report);

/// One line: {"line", "source", "model", "hardware", "gpus", "tp", "pp", "dp", "experts", "ep", "etp", "mbs", "gbs",
/// "recompute", "schedule", "zero3", "framework", "iter_s", "tflops_gpu", "tflops_convention", "published": {"iter_s",
/// "tflops_gpu"}, "error_pct": {"iter_s", "tflops_gpu"}, "breakdown_ms": {"products", "attention", "memory_bound",
/// "tensor", "experts", "pipeline", "data", "optimizer"}, "bubble_pct"}. "iter_s" and "tflops_gpu" are predicted.
/// Published values absent from the row are null, as are their errors.
std::string run_prediction_json(const plan::PublishedRun& run, const plan::RunPrediction& prediction);
/// One line for an invalid row: {"line", "error"}.
std::string bad_row_json(const plan::PublishedRow& row);

}  // namespace trireme::io
