#pragma once

#include <string>

#include "io/file_handle.hpp"
#include "src/train/metrics.hpp"

namespace trireme::io {

/// Metrics as JSON lines: one object an iteration, flushed at once. What is not finite is null.
class MetricsFile final : public train::MetricsSink {
 public:
  /// Appends to `path`. A run that goes on from iteration `after_iteration` cuts off what the file holds of later ones
  /// first, and its evaluation where `evaluation_left` says that it comes again, so that everything stands once; 0
  /// begins the file anew. Throws IoError.
  MetricsFile(std::string path, std::int64_t after_iteration, bool evaluation_left = false);
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;

 private:
  void append(const std::string& line);
  std::string path_;
  Descriptor file_;
};

}  // namespace trireme::io
