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

/// Log of a run over all of its jobs, as Megatron-LM's --log-progress writes it: progress.txt in the folder of the
/// checkpoints. Lines of fields, separated by tabs: local time, "Job ID: " and SLURM's number, "# GPUs: " and the
/// number of ranks, and an event. Throws IoError.
class ProgressFile {
 public:
  /// Adds the line "Starting job". `work` is that of the checkpoint that this job begins with. `now` replaces the
  /// clock.
  ProgressFile(
      const std::string& folder, int ranks, const RunWork& work,
      std::function<std::time_t()> now = [] { return std::time(nullptr); });

  /// Adds the line of a saved checkpoint or, with `is_begun`, of one that is on its way. It has two throughputs, in
  /// TFLOP/s a rank: of this job, and since the first job in a row with as many ranks, the time between jobs included.
  void add_checkpoint(const RunWork& work, bool is_begun);
  /// Adds the line of a checkpoint on its way that has arrived.
  void add_arrival(std::int64_t iteration);

 private:
  void append(const std::string& event);
  /// Start of a row of jobs.
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
