#pragma once

#include <string>

#include "io/metrics/append_file.hpp"
#include "src/train/run.hpp"

namespace trireme::io {

/// Metrics as JSON lines: one object an iteration, flushed at once. Numbers that are not finite are null.
class MetricsFile final : public train::MetricsSink {
 public:
  /// Appends to `path`. A run that continues from `done` first removes later iterations and repeated evaluations from
  /// the file, so that every line occurs once. A run from the start replaces the file. Throws IoError.
  MetricsFile(const std::string& path, const train::Progress& done);
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;

 private:
  AppendFile file_;
};

}  // namespace trireme::io
