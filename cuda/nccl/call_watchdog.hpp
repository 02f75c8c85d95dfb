#pragma once

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "src/base/timer.hpp"

namespace trireme::cuda {

// The abort flags of a communicator's kernels and calls are set immediately; the rest of the abort may wait for graphs
// that hold it, and for other ranks.
inline constexpr auto max_abort_time = std::chrono::seconds(5);

/// Begins to abort a communicator, in a separate thread.
std::future<ncclResult_t> begin_to_abort(ncclComm_t comm);

/// Runs blocking NCCL calls, one at a time. A watchdog thread aborts the communicator of a call that takes too long, or
/// whose communicator reports an error: the call then returns. It polls ten times a second. If NCCL still does not
/// return, it terminates the process with ExitCode::hung.
///
/// Non-blocking communicators would need no thread here, but recent NCCL versions start one for each of their
/// collectives.
class CallWatchdog {
 public:
  CallWatchdog();
  ~CallWatchdog();
  CallWatchdog& operator=(CallWatchdog&&) = delete;

  struct Outcome {
    ncclResult_t status = ncclSuccess;
    /// The reason, if the communicator was aborted.
    std::optional<std::string> aborted;
  };
  /// Returns what `function` returns. `comm` is the communicator of the call, or null while it is being created: then
  /// the process ends after the maximum wait. `max_wait_s` 0: no limit. `text` names the call and the rank in that
  /// message.
  Outcome run(ncclComm_t comm, double max_wait_s, const std::string& text,
              const std::function<ncclResult_t()>& function);

 private:
  struct Call {
    ncclComm_t comm;
    double max_wait_s;
    std::string text;
    Patience patience;
    Patience until_end{std::chrono::duration<double>(max_abort_time).count()};
    std::optional<std::string> aborted = std::nullopt;
  };
  void watch();
  void look();

  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::optional<Call> call_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace trireme::cuda
