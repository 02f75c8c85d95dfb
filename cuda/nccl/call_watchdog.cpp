#include "cuda/nccl/call_watchdog.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace trireme::cuda {

std::future<ncclResult_t> begin_to_abort(ncclComm_t comm) {
  std::packaged_task<ncclResult_t()> abort([comm] { return ncclCommAbort(comm); });
  std::future<ncclResult_t> end = abort.get_future();
  std::thread(std::move(abort)).detach();
  return end;
}

CallWatchdog::CallWatchdog() : thread_([this] { watch(); }) {}

CallWatchdog::~CallWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

CallWatchdog::Outcome CallWatchdog::run(ncclComm_t comm, double max_wait_s, const std::string& text,
                                        const std::function<ncclResult_t()>& function) {
  {
    const std::lock_guard lock(mutex_);
    call_.emplace(Call{comm, max_wait_s, text, Patience(max_wait_s)});
  }
  const ncclResult_t status = function();
  const std::lock_guard lock(mutex_);
  Outcome outcome{status, std::move(call_->aborted)};
  call_.reset();
  return outcome;
}

void CallWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::milliseconds(100), [this] { return ending_; })) {
    if (call_) look();
  }
}

void CallWatchdog::look() {
  if (call_->aborted) {
    if (!call_->until_end.over()) return;
  } else {
    ncclResult_t state = ncclSuccess;
    if (call_->comm != nullptr && ncclCommGetAsyncError(call_->comm, &state) != ncclSuccess) state = ncclInternalError;
    if (state != ncclSuccess && state != ncclInProgress) {
      call_->aborted = ncclGetErrorString(state);
    } else if (call_->patience.over()) {
      call_->aborted = fmt::format("not done after {:g} s", call_->max_wait_s);
    } else {
      return;
    }
    if (call_->comm != nullptr) {
      begin_to_abort(call_->comm).wait_for(std::chrono::seconds(0));
      return;
    }
  }
  log::error("ending this process, which is held in a call of NCCL: {}: {}", call_->text, *call_->aborted);
  std::_Exit(static_cast<int>(ExitCode::hung));
}

}  // namespace trireme::cuda
