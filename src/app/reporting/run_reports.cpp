#include "src/app/reporting/run_reports.hpp"

#include "io/metrics/metrics_file.hpp"

namespace trireme::app {

RunReports::RunReports(Job& job, const RunConfig& config, const train::Progress& done) {
  collectively(*job.world, [&] {
    if (!job.speaks()) return;
    if (!config.run.metrics_file.empty()) {
      sinks_.push_back(std::make_unique<io::MetricsFile>(config.run.metrics_file, done));
    }
    const io::TensorboardOptions& tensorboard = config.report.tensorboard;
    if (!tensorboard.folder.empty()) {
      sinks_.push_back(std::make_unique<io::TensorboardFile>(tensorboard, job.world->size(), *job.backend, done));
    }
  });
}

void RunReports::write(const train::TrainRecord& record) {
  for (const auto& sink : sinks_) sink->write(record);
}

void RunReports::write(const train::EvaluationRecord& record) {
  for (const auto& sink : sinks_) sink->write(record);
}

}  // namespace trireme::app
