#include "cuda/comm/nccl_group.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <source_location>
#include <thread>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::cuda {
namespace {

std::string reason_of(ncclResult_t status, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  return fmt::format("{}{}", ncclGetErrorString(status),
                     detail == nullptr || *detail == '\0' ? "" : fmt::format(": {}", detail));
}

/// The state of a call that may still be under way, once it is not, or ncclInProgress after too long.
ncclResult_t final_state(ncclResult_t status, ncclComm_t comm) {
  for (Timer timer; status == ncclInProgress && timer.elapsed_s() < NcclGroup::patience_s;) {
    if (ncclCommGetAsyncError(comm, &status) != ncclSuccess) return ncclInternalError;
    if (status == ncclInProgress && timer.elapsed_ms() > 1) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return status;
}

std::string too_long() { return fmt::format("not done after {:.0f} s", NcclGroup::patience_s); }

}  // namespace

void wait_for_communicator(const Device& device, ncclResult_t status, const ncclComm_t* comm, const char* call) {
  const ncclComm_t made = *comm;
  if (made != nullptr) status = final_state(status, made);
  if (status == ncclSuccess) return;
  std::string reason = status == ncclInProgress ? too_long() : reason_of(status, made);
  if (made != nullptr) ncclCommAbort(made);
  throw NcclError(error_text(call, reason, device.place(), std::source_location::current()));
}

NcclGroup::NcclGroup(std::shared_ptr<Device> device, ncclComm_t comm, std::string name)
    : device_(std::move(device)), comm_(comm), name_(std::move(name)), stream_(device_, CudaStream::Priority::high) {
  settle(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
  settle(ncclCommCount(comm_, &size_), "ncclCommCount");
  watch_ = device_->watch([this] { poll(); },
                          [this] {
                            const std::string operation = under_way();
                            return operation.empty() ? "" : fmt::format("the group {}: {}", name_, operation);
                          });
}

NcclGroup::~NcclGroup() {
  if (comm_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {
    // The other ranks may never come to this point.
    ncclCommAbort(comm_);
    return;
  }
  try {
    stream_.synchronize();
    settle(ncclCommFinalize(comm_), "ncclCommFinalize");
    ncclCommDestroy(comm_);
  } catch (const std::exception& error) {
    log::error("the communicator {} did not end in order: {}", name_, error.what());
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }
}

void NcclGroup::check_alive() const {
  if (comm_ == nullptr) {
    throw NcclError("the communicator {} was given up after an earlier error; {}", name_, to_string(device_->place()));
  }
}

void NcclGroup::settle(ncclResult_t status, const char* call) {
  status = final_state(status, comm_);
  if (status != ncclSuccess) give_up(call, status == ncclInProgress ? too_long() : reason_of(status, comm_));
}

void NcclGroup::poll() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t status = ncclCommGetAsyncError(comm_, &state);
  if (status != ncclSuccess) state = status;
  if (state == ncclSuccess || state == ncclInProgress) return;
  const std::string operation = under_way();
  give_up(operation.empty() ? "a communicator without an operation under way" : operation, reason_of(state, comm_));
}

std::shared_ptr<Event> NcclGroup::enqueued(std::string operation) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  device_->check(cudaStreamIsCapturing(stream_.handle(), &capture), "cudaStreamIsCapturing");
  // What is recorded is not under way, and while it is recorded no event may be asked.
  if (capture != cudaStreamCaptureStatusNone) return stream_.record();
  while (!operations_.empty() && operations_.front().end->done()) operations_.pop_front();
  std::shared_ptr<Event> end = stream_.record();
  operations_.push_back({operations_begun_++, std::move(operation), end});
  return end;
}

std::string NcclGroup::under_way() {
  for (const Operation& operation : operations_) {
    bool done = false;
    try {
      done = operation.end->done();
    } catch (const CudaError&) {
      // The GPU itself is broken: nothing is known to be done.
    }
    if (!done) return fmt::format("{} (operation {} of the group)", operation.text, operation.number);
  }
  return "";
}

void NcclGroup::give_up(const std::string& what, const std::string& reason) {
  ncclCommAbort(comm_);
  comm_ = nullptr;
  throw NcclError("NCCL: {} failed on rank {} of {} of the group {}: {}; {}", what, rank_, size_, name_, reason,
                  to_string(device_->place()));
}

}  // namespace trireme::cuda
