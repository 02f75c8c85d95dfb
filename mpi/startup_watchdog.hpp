#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::mpi {

/// Terminates this process with ExitCode::hung if the job has not started in time: MPI_Init waits indefinitely for a
/// rank that never starts.
///
/// Rank 0 reports it after `minutes`, another rank 3 s times its number (at most 30 s) later. Thus one message is
/// printed before the launcher ends the others. Zero minutes: no limit.
class StartupWatchdog {
 public:
  explicit StartupWatchdog(double minutes);
  /// Ends the watch: the job has started.
  ~StartupWatchdog();
  StartupWatchdog(const StartupWatchdog&) = delete;
  StartupWatchdog& operator=(const StartupWatchdog&) = delete;

 private:
  void watch(double minutes, int rank);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;  // last: it reads the members above
};

}  // namespace trireme::mpi
