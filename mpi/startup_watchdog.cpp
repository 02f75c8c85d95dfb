#include "mpi/startup_watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "mpi/environment.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"

namespace trireme::mpi {

StartupWatchdog::StartupWatchdog(double minutes) {
  if (minutes <= 0) return;
  // Only this thread may read the environment: MPI changes it during startup.
  thread_ = std::thread([this, minutes, rank = launched_rank()] { watch(minutes, rank); });
}

StartupWatchdog::~StartupWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StartupWatchdog::watch(double minutes, int rank) {
  const std::chrono::duration<double> limit(60 * minutes + std::min(3 * rank, 30));
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, limit, [this] { return started_; })) return;
  log::error(
      "rank {} on host {} waited {:g} minutes for all ranks to reach MPI_Init: a rank did not start, or hangs. Look "
      "for "
      "the host without a trireme process, or with one that does not run, and start without it. If hosts start slowly, "
      "try a larger <startup_timeout_minutes>",
      rank, host_name(), minutes);
  // The other threads are inside MPI, which cannot be exited cleanly.
  _exit(static_cast<int>(ExitCode::hung));
}

}  // namespace trireme::mpi
