#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

namespace trireme::io {

/// Work of a run up to a checkpoint.
struct RunWork {
  std::int64_t iteration = 0;
  double flops = 0;  ///< the model's, of all samples so far
  double tokens = 0;
};

/// Log of a run across all its jobs, in the format of Megatron-LM's --log-progress: progress.txt in the checkpoint
/// folder. Tab-separated fields: local time, "Job ID: " and SLURM's number, "# GPUs: " and the number of ranks, and an
/// event. Throws IoError.
class ProgressFile {
 public:
  /// Adds the line "Starting job". `work` is that of the checkpoint that this job resumes. `now` replaces the clock.
  ProgressFile(
      const std::string& folder, int ranks, const RunWork& work,
      std::function<std::time_t()> now = [] { return std::time(nullptr); });

  /// Adds the line of a saved checkpoint or, with `is_begun`, of one in progress. It has two throughputs, in TFLOP/s
  /// per rank: of this job, and since the first of the consecutive jobs with this number of ranks, including the time
  /// between jobs.
  void add_checkpoint(const RunWork& work, bool is_begun);
  /// Adds the line of a checkpoint in progress that has completed.
  void add_arrival(std::int64_t iteration);

 private:
  void append(const std::string& event);
  /// Start of a series of jobs.
  struct Start {
    std::time_t time = 0;
    double flops = 0;
  };
  Start first_start() const;

  std::string path_;
  int ranks_;
  std::function<std::time_t()> now_;
  Start start_;
};

}  // namespace trireme::io
