#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::mpi {

/// Ends this process with ExitCode::hung when the job has not started in time: MPI_Init waits for ever for a rank that
/// never gets there.
///
/// Rank 0 says so after `minutes`, another rank 3 s times its number (30 s at most) later, so that one message is
/// printed before the launcher ends the others. Zero minutes: no limit.
class StartupWatchdog {
 public:
  explicit StartupWatchdog(double minutes);
  /// The job has started.
  ~StartupWatchdog();
  StartupWatchdog(const StartupWatchdog&) = delete;
  StartupWatchdog& operator=(const StartupWatchdog&) = delete;

 private:
  void watch(double minutes);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;  // last: it reads what stands above
};

}  // namespace trireme::mpi
