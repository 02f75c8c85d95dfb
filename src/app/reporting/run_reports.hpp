#pragma once

#include <memory>
#include <vector>

#include "src/app/job.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/train/run.hpp"

namespace trireme::app {

/// Files that a run writes beside its checkpoints: metrics and TensorBoard's, on rank 0.
class RunReports final : public train::MetricsSink {
 public:
  /// Opens the files for a run that continues from `done`. All arguments must live longer. Collective.
  RunReports(Job& job, const RunConfig& config, const train::Progress& done);
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;

 private:
  std::vector<std::unique_ptr<train::MetricsSink>> sinks_;
};

}  // namespace trireme::app
