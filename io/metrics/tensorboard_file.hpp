#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/metrics/append_file.hpp"
#include "io/metrics/tensorboard_event.hpp"
#include "src/backend/backend.hpp"
#include "src/train/timing/rank_times.hpp"
#include "src/train/train_record.hpp"

namespace trireme::io {

/// Curves that a run writes for TensorBoard.
struct TensorboardOptions {
  std::string folder;             ///< empty: none
  std::int64_t log_interval = 1;  ///< iterations between points
  bool learning_rate = true;
  bool loss_scale = true;
  bool perplexity = false;  ///< with the losses of evaluations
  bool memory = false;
  bool world_size = false;
  bool timers = false;
  bool throughput = false;  ///< with the timers
};

/// Metrics as a TensorBoard event file, under Megatron-LM's names (megatron/training/training.py, training_log). Points
/// are written unbuffered. Most curves exist twice: by iterations, and as "NAME vs samples" by samples.
class TensorboardFile final : public train::MetricsSink {
 public:
  /// Creates the folder and a file in it. A run resumed from `done` first removes later points from this program's
  /// files there, so no step occurs twice; a run from the start removes those files. `backend` must outlive this
  /// object. Throws as `AppendFile`, here and below.
  TensorboardFile(const TensorboardOptions& options, int world_size, const Backend& backend,
                  const train::Progress& done);
  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;
  /// Adds each sample to the text tab.
  void write(const train::SampleRecord& record) override;
  void write(const train::TaskRecord& record) override;
  /// Adds its text to the text tab.
  void write(const train::RewindRecord& record) override;
  /// Adds the parts' times, maximum over the ranks, in seconds.
  void write(std::int64_t iteration, const train::RankTimes::Report& report);

 private:
  /// Adds points at an iteration; those of `by_samples` also at a number of samples.
  void add(std::int64_t iteration, std::int64_t samples, std::vector<Scalar> by_samples,
           const std::vector<Scalar>& by_iteration = {});
  void append(const std::string& records);

  TensorboardOptions options_;
  int world_size_;
  const Backend& backend_;
  std::optional<AppendFile> file_;
  std::string unwritten_;  // the version event that begins the file, until written
  double elapsed_ms_ = 0;  // since the last point
  double tflop_ = 0;
  int iterations_ = 0;
};

}  // namespace trireme::io
