#pragma once

#include <cstdint>
#include <string>

#include "io/metrics/append_file.hpp"
#include "src/backend/backend.hpp"
#include "src/train/run.hpp"

namespace trireme::io {

/// Part of a file of metrics that a run keeps when it begins.
struct MetricsCut {
  std::int64_t kept_bytes = 0;
  std::int64_t lost_iterations = 0;  ///< in the part that is removed: the run does them again
  double lost_ms = 0;
};

/// Metrics as JSON lines: one object an iteration, flushed at once. Numbers that are not finite are null.
class MetricsFile final : public train::MetricsSink {
 public:
  /// Appends to `path`. A run that continues from `done` first removes later iterations and repeated evaluations from
  /// the file, so that every line occurs once. A run from the start replaces the file. Throws IoError. `backend`, where
  /// given, must live longer: its allocated bytes, the most so far, are a member of every iteration.
  MetricsFile(const std::string& path, const train::Progress& done, const Backend* backend = nullptr);
  const MetricsCut& cut() const { return cut_; }
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;

 private:
  MetricsCut cut_;
  const Backend* backend_;
  AppendFile file_;
};

}  // namespace trireme::io
