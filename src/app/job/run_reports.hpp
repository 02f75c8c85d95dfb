#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/metrics/attempt_file.hpp"
#include "io/metrics/metrics_file.hpp"
#include "io/metrics/progress_file.hpp"
#include "io/metrics/tensorboard_file.hpp"
#include "io/metrics/trace_file.hpp"
#include "src/app/job/job.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/comm/flight_record.hpp"
#include "src/train/run.hpp"
#include "src/train/timing/rank_times.hpp"
#include "src/train/timing/step_profiler.hpp"

namespace trireme::app {

/// Reports of a run besides its log and checkpoints: the files of rank 0 (metrics, attempts, curves, progress), the
/// timeline of all ranks, and the comparison of their times.
class RunReports final : public train::MetricsSink {
 public:
  /// Opens the files for a run that continues from `trainer`'s progress, and starts recording the model. Changes
  /// existing files only once all are open and locked against other jobs. `communication` measures waits, and `flight`
  /// is told what each rank does; both may be null. The checkpoint that the run continues from took `load_ms` to load.
  /// All other arguments must live longer. Collective.
  RunReports(Job& job, const RunConfig& config, train::ParallelModel& model, const train::Trainer& trainer,
             const train::ExposedCommunication* communication, FlightRecord* flight, double load_ms);
  ~RunReports() override;
  RunReports& operator=(RunReports&&) = delete;

  void write(const train::TrainRecord& record) override;
  void write(const train::EvaluationRecord& record) override;
  void write(const train::SampleRecord& record) override;
  void write(const train::TaskRecord& record) override;
  void write(const train::RewindRecord& record) override;

  /// Adds the hooks of the training loop, and observes its checkpoints.
  void set_hooks(train::RunHooks& hooks);
  /// Returns the peak for the MFU, 0 if there is none. Logs it and its source.
  double peak_tflops() const;
  /// Records the end of this attempt, and writes the timeline. Collective.
  void finish(train::RunEnd end);
  /// Records the end of this attempt by an error, if possible.
  void note_failure(const std::exception& error) noexcept;

 private:
  /// Opens the files of rank 0.
  void open_records(double load_ms);
  template <class Record>
  void write_record(const Record& record);
  void add_step(const train::TrainRecord& record);
  void log_times(std::int64_t iteration);
  void note_checkpoint(train::SaveEvent event, std::int64_t step);
  void note_end(int exit_code, const std::string& reason);
  /// Runs `write`, which adds to the files of an option. Training does not depend on them: warns of the first failure
  /// of each option.
  void attempt(const char* option, const std::function<void()>& write);
  io::RunWork work() const;
  /// Returns the peak of a rank's device: the user's, or that of a known GPU in 16 bits.
  std::optional<train::DevicePeak> device_peak() const;
  report::AttemptStart attempt_start(const io::EarlierIterations& earlier, double load_ms) const;
  report::SpentTime spent() const;
  void log_goodput();
  /// Returns the time of the iterations that a rewind undid, the latest being `iteration`. The next rewind, which may
  /// go back as far, counts them no more.
  double take_lost_ms(const train::Rewind& rewind, std::int64_t iteration);

  Job& job_;
  const RunConfig& config_;
  train::ParallelModel& model_;
  const train::Trainer& trainer_;
  const train::ExposedCommunication* communication_;
  std::unique_ptr<io::MetricsFile> metrics_;
  std::unique_ptr<io::AttemptFile> attempts_;
  std::vector<report::Attempt> history_;  // attempts of the run, on rank 0; the last is this one
  double trained_ms_ = 0;                 // time of the iterations kept, likewise
  std::vector<double> step_ms_;           // times of the iterations, with rewinds
  double evaluating_ms_ = 0;
  const train::CheckpointWriter* checkpoints_ = nullptr;
  std::unique_ptr<io::TensorboardFile> tensorboard_;
  std::unique_ptr<io::ProgressFile> progress_;
  std::set<std::string> failed_;  // options whose files could not be written
  std::optional<TraceRecorder> recorder_;
  std::optional<io::TraceFile> trace_file_;
  std::optional<train::RankTimes> times_;
  std::optional<train::StepProfiler> profiler_;
  double previous_record_s_ = 0;     // system time of the last record before this attempt, until its first step
  std::size_t counted_spans_ = 0;    // those already in `times_`
  std::vector<std::string> places_;  // names of ranks with their hosts; on rank 0
};

}  // namespace trireme::app
