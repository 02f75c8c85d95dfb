#include "cuda/nccl/nccl_handle.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <source_location>
#include <thread>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::cuda {
namespace {

std::string reason_of(ncclResult_t status, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  return fmt::format("{}{}", ncclGetErrorString(status),
                     detail == nullptr || *detail == '\0' ? "" : fmt::format(": {}", detail));
}

/// Waits for the final state of a call, or returns ncclInProgress after the longest wait. It polls the communicator:
/// ncclCommSplit returns success before it is complete.
ncclResult_t final_state(const Device& device, ncclResult_t status, ncclComm_t comm) {
  if (status != ncclSuccess && status != ncclInProgress) return status;
  const Timer timer;
  for (Patience patience(device.max_wait_s());;) {
    if (ncclCommGetAsyncError(comm, &status) != ncclSuccess) return ncclInternalError;
    if (status != ncclInProgress || patience.over()) return status;
    if (timer.elapsed_ms() > 1) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::string too_long(const Device& device) { return fmt::format("not done after {:g} s", device.max_wait_s()); }

// The flags that end a communicator's kernels are set at once; the rest of its end may wait for graphs that hold it,
// and for other ranks.
constexpr auto max_abort_time = std::chrono::seconds(5);

/// Begins to abort a communicator, in a thread of its own.
std::future<ncclResult_t> begin_to_abort(ncclComm_t comm) {
  std::packaged_task<ncclResult_t()> abort([comm] { return ncclCommAbort(comm); });
  std::future<ncclResult_t> end = abort.get_future();
  std::thread(std::move(abort)).detach();
  return end;
}

}  // namespace

void wait_for_communicator(const Device& device, ncclResult_t status, const ncclComm_t* comm, const char* call) {
  const ncclComm_t made = *comm;
  if (made != nullptr) status = final_state(device, status, made);
  if (status == ncclSuccess) return;
  std::string reason = status == ncclInProgress ? too_long(device) : reason_of(status, made);
  if (made != nullptr) begin_to_abort(made).wait_for(max_abort_time);
  throw NcclError(error_text(call, reason, device.location(), std::source_location::current()));
}

NcclHandle::NcclHandle(std::shared_ptr<Device> device, ncclComm_t comm, std::string name)
    : device_(std::move(device)), comm_(comm), name_(std::move(name)), stream_(device_, CudaStream::Priority::high) {
  settle(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
  settle(ncclCommCount(comm_, &size_), "ncclCommCount");
  const auto text = [this] {
    const std::string operation = under_way();
    return operation.empty() ? "" : fmt::format("the group {}: {}", name_, operation);
  };
  watch_ = device_->watch({[this] { poll(); }, text, [this] { abandon(); }});
}

NcclHandle::~NcclHandle() {
  // While an exception unwinds, the other ranks may never reach this point.
  if (std::uncaught_exceptions() > 0) device_->abandon();
  if (aborting_.valid()) aborting_.wait_until(aborted_since_ + max_abort_time);
  if (comm_ == nullptr) return;
  try {
    stream_.synchronize();
    settle(ncclCommFinalize(comm_), "ncclCommFinalize");
    ncclCommDestroy(comm_);
  } catch (const std::exception& error) {
    log::error("the communicator {} did not end in order: {}", name_, error.what());
    abandon();
  }
}

void NcclHandle::abandon() {
  if (comm_ == nullptr) return;
  aborted_since_ = std::chrono::steady_clock::now();
  aborting_ = begin_to_abort(std::exchange(comm_, nullptr));
}

void NcclHandle::check_alive() const {
  if (comm_ == nullptr) {
    throw NcclError("the communicator {} was aborted after an earlier error; {}", name_,
                    to_string(device_->location()));
  }
}

void NcclHandle::settle(ncclResult_t status, const char* call) {
  status = final_state(*device_, status, comm_);
  if (status != ncclSuccess) give_up(call, status == ncclInProgress ? too_long(*device_) : reason_of(status, comm_));
}

void NcclHandle::poll() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t status = ncclCommGetAsyncError(comm_, &state);
  if (status != ncclSuccess) state = status;
  if (state == ncclSuccess || state == ncclInProgress) return;
  const std::string operation = under_way();
  give_up(operation.empty() ? "a communicator without an operation under way" : operation, reason_of(state, comm_));
}

std::shared_ptr<Event> NcclHandle::enqueued(std::string operation) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  device_->check(cudaStreamIsCapturing(stream_.handle(), &capture), "cudaStreamIsCapturing");
  // A recorded call is not in flight, and events cannot be queried during recording.
  if (capture != cudaStreamCaptureStatusNone) return stream_.record();
  while (!operations_.empty() && operations_.front().end->done()) operations_.pop_front();
  std::shared_ptr<Event> end = stream_.record();
  operations_.push_back({operations_begun_++, std::move(operation), end});
  return end;
}

std::string NcclHandle::under_way() {
  for (const Operation& operation : operations_) {
    bool done = false;
    try {
      done = operation.end->done();
    } catch (const CudaError&) {
      // The GPU itself has failed: no operation counts as complete.
    }
    if (!done) return fmt::format("{} (operation {} of the group)", operation.text, operation.number);
  }
  return "";
}

void NcclHandle::give_up(const std::string& what, const std::string& reason) {
  abandon();
  device_->abandon();
  throw NcclError("NCCL: {} failed on rank {} of {} of the group {}: {}; {}", what, rank_, size_, name_, reason,
                  to_string(device_->location()));
}

}  // namespace trireme::cuda
