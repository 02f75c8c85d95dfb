#pragma once

#include <cstdint>
#include <string>

#include "io/metrics/append_file.hpp"
#include "src/backend/backend.hpp"
#include "src/train/train_record.hpp"

namespace trireme::io {

/// Iterations that a run removes from a file of metrics when it begins: it does them again.
struct LostIterations {
  std::int64_t count = 0;
  double ms = 0;
};

/// Metrics as JSON lines: one object an iteration, flushed at once. Numbers that are not finite are null.
class MetricsFile final : public train::MetricsSink {
 public:
  /// Opens `path` and leaves its content as it is. `backend`, where given, must live longer: its allocated bytes, the
  /// most so far, are a member of every iteration. Throws as `AppendFile`, here and below.
  explicit MetricsFile(const std::string& path, const Backend* backend = nullptr);
  /// Begins a run that continues from `done`: removes later iterations and evaluations that are to come from the file,
  /// so that every line occurs once, and half a line at its end. All other lines stay. A run from the start empties the
  /// file.
  LostIterations begin(const train::Progress& done);
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;

 private:
  std::string path_;
  const Backend* backend_;
  AppendFile file_;
};

}  // namespace trireme::io
