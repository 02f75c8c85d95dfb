#include "mpi/run_main.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mpi/error.hpp"
#include "mpi/hang_report.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/base/timer.hpp"

namespace trireme::mpi {
namespace {

/// Terminates this process with ExitCode::hung if the job has not started in time: MPI_Init waits indefinitely for a
/// rank that never starts.
///
/// Rank 0 reports it after `minutes`, another rank 3 s times its number (at most 30 s) later. Thus one message is
/// printed before the launcher ends the others. Zero minutes: no limit.
class StartupWatchdog {
 public:
  explicit StartupWatchdog(double minutes) {
    if (minutes <= 0) return;
    // Only this thread may read the environment: MPI changes it during startup.
    thread_ = std::thread([this, minutes, rank = launched_rank()] { watch(minutes, rank); });
  }
  /// Ends the watch: the job has started.
  ~StartupWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  StartupWatchdog& operator=(StartupWatchdog&&) = delete;

 private:
  void watch(double minutes, int rank) {
    constexpr double max_s = 1e9;  // 30 years: the clock counts nanoseconds in 64 bits
    const std::chrono::duration<double> limit(std::min(60 * minutes + std::min(3 * rank, 30), max_s));
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return started_; })) return;
    log::error(
        "rank {} on host {} waited {:g} minutes for all ranks to reach MPI_Init: a rank did not start, or hangs. Look "
        "for the host without a trireme process, or with one that does not run, and start without it. If hosts start "
        "slowly, try a larger <startup_timeout_minutes>",
        rank, node_name(), minutes);
    // The other threads are inside MPI, which cannot be exited cleanly.
    _exit(static_cast<int>(ExitCode::hung));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;  // last: it reads the members above
};

struct Failure {
  ExitCode exit_code;
  std::string message;
};

/// The exception being handled.
Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::environment, "out of memory"};
  } catch (const std::exception& error) {
    return {ExitCode::environment, error.what()};
  } catch (...) {
    return {ExitCode::environment, "an exception of unknown type"};
  }
}

/// Returns whether all ranks call it within two seconds.
bool all_fail(MPI_Comm failing) {
  constexpr double patience_s = 2;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(failing, &request) != MPI_SUCCESS) return false;
  for (Timer timer; timer.elapsed_s() < patience_s; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    int done = 0;
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
  }
  return false;
}

}  // namespace

int run_main(int argc, char** argv, const std::function<int(MpiEnvironment&)>& function,
             double startup_timeout_minutes) {
  log::initialise(0, 1);  // until the rank is known
  try {
    std::optional<StartupWatchdog> watchdog(std::in_place, startup_timeout_minutes);
    MpiEnvironment environment(argc, argv);
    log::initialise(environment.rank(), environment.size());
    MPI_Comm failing = MPI_COMM_NULL;  // used only after an exception
    check(MPI_Comm_dup(MPI_COMM_WORLD, &failing), "MPI_Comm_dup");
    const std::vector<std::string> hosts = all_hosts(failing);
    watchdog.reset();
    int exit_code = 0;
    try {
      exit_code = function(environment);
    } catch (...) {
      const Failure failure = current_failure();
      exit_code = static_cast<int>(failure.exit_code);
      if (environment.size() == 1) {
        log::error("{}", failure.message);
      } else if (failure.exit_code == ExitCode::hung) {
        // Other ranks may have started to wait later.
        report_hang(failing, hosts, failure.message, std::max(2.0, environment.engine()->max_wait_s() / 10));
        environment.abort(failure.exit_code);
      } else if (!environment.engine()->abandoned() && all_fail(failing)) {
        // The lowest rank with a message prints it: each distinct message appears once.
        std::uint64_t mine = fnv1a(failure.message);
        std::vector<std::uint64_t> all(static_cast<std::size_t>(environment.size()));
        check(MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, failing), "MPI_Allgather");
        if (std::ranges::find(all, mine) - all.begin() == environment.rank()) log::error("{}", failure.message);
      } else {
        log::error("{} failed alone and ends the job: {}", this_rank_and_host(), failure.message);
        environment.abort(failure.exit_code);
      }
    }
    check(MPI_Comm_free(&failing), "MPI_Comm_free");
    return exit_code;
  } catch (...) {
    const Failure failure = current_failure();
    log::error("{}", failure.message);
    return static_cast<int>(failure.exit_code);
  }
}

}  // namespace trireme::mpi
