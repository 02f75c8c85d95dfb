#pragma once

#include <string>

#include "src/plan/cases/run_prediction.hpp"

namespace trireme::io {

/// One line: {"line", "source", "model", "hardware", "gpus", "tp", "pp", "dp", "mbs", "gbs", "recompute", "schedule",
/// "zero3", "framework", "iter_s", "tflops_gpu", "tflops_convention", "published": {"iter_s", "tflops_gpu"},
/// "error_pct": {"iter_s", "tflops_gpu"}, "breakdown_ms": {"products", "attention", "memory_bound", "tensor",
/// "pipeline", "data", "optimizer"}, "bubble_pct"}. "iter_s" and "tflops_gpu" are predicted. Published values absent
/// from the row are null, as are their errors.
std::string run_prediction_json(const plan::PublishedRun& run, const plan::RunPrediction& prediction);
/// One line for an invalid row: {"line", "error"}.
std::string bad_row_json(const plan::PublishedRow& row);

}  // namespace trireme::io
