#pragma once

#include "src/plan/cases/published_costs.hpp"
#include "src/plan/cases/published_run.hpp"
#include "src/plan/step/work_time.hpp"

namespace trireme::plan {

/// Prediction of a published run. The work is that of the busiest pipeline rank; with the other times it adds up to the
/// update.
struct RunPrediction {
  double seconds = 0;      ///< time of an update
  double tflops_gpu = 0;   ///< in the row's convention
  WorkTime work;           ///< work of an update, in milliseconds like the rest
  double pipeline_ms = 0;  ///< messages between stages, and the bubble
  double data_ms = 0;      ///< exposed communication of the data group: gradients, and FSDP's parameters
  double optimizer_ms = 0;
  double bubble = 0;  ///< 1 - (work of the rank with the most) / time of the pipeline
};

RunPrediction predict_run(const PublishedRun& run, const PublishedCosts& costs);
/// Likewise with the costs of the row's cluster.
RunPrediction predict_run(const PublishedRun& run);

}  // namespace trireme::plan
