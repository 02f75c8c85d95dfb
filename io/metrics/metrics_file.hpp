#pragma once

#include <cstdint>
#include <string>

#include "io/metrics/append_file.hpp"
#include "src/backend/backend.hpp"
#include "src/train/train_record.hpp"

namespace trireme::io {

/// Earlier iterations of a run in its metrics file when an attempt starts.
struct EarlierIterations {
  std::vector<double> kept_ms;  ///< times
  std::int64_t lost = 0;        ///< removed, since the attempt repeats them
  double lost_ms = 0;
  double last_written = 0;  ///< time of the last record, seconds since 1970; 0: none
};

/// Metrics as JSON lines: one object per iteration, evaluation or set of samples, flushed immediately. Non-finite
/// numbers are null.
class MetricsFile final : public train::MetricsSink {
 public:
  /// Opens `path` and keeps its content. `backend`, if given, must outlive this object: every iteration records its
  /// peak allocated bytes. Throws as `AppendFile`, here and below.
  explicit MetricsFile(const std::string& path, const Backend* backend = nullptr);
  /// Begins a run resumed from `done`. Removes later iterations, pending evaluations and a partial last line, so every
  /// line occurs once. Keeps all other lines. A run from the start empties the file. Throws ConfigError, and keeps the
  /// file, if it is not empty and has no record.
  EarlierIterations begin(const train::Progress& done);
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;
  /// Writes {"iteration", "samples": [{"prompt", "text"}, ...]}. Bytes that are not UTF-8 become U+FFFD.
  void write(const train::SampleRecord& record) override;
  void write(const train::TaskRecord& record) override;
  void write(const train::RewindRecord& record) override;

 private:
  std::string path_;
  const Backend* backend_;
  AppendFile file_;
};

}  // namespace trireme::io
