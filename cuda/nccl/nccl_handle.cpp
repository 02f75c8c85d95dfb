#include "cuda/nccl/nccl_handle.hpp"

#include <fmt/format.h>

#include <exception>
#include <source_location>
#include <utility>

#include "src/base/log.hpp"

namespace trireme::cuda {
namespace {

std::string nccl_reason(ncclResult_t status, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  return fmt::format("{}{}", ncclGetErrorString(status),
                     detail == nullptr || *detail == '\0' ? "" : fmt::format(": {}", detail));
}

}  // namespace

ncclComm_t make_nccl_world(const Device& device, CallWatchdog& watchdog, int rank, int size, ncclUniqueId id,
                           ncclConfig_t config) {
  constexpr const char* call = "ncclCommInitRankConfig";
  ncclComm_t comm = nullptr;
  const CallWatchdog::Outcome made =
      watchdog.run(nullptr, device.max_wait_s(), fmt::format("{}; {}", call, to_string(device.location())),
                   [&] { return ncclCommInitRankConfig(&comm, size, id, rank, &config); });
  if (made.status == ncclSuccess) return comm;
  const std::string reason = nccl_reason(made.status, comm);
  if (comm != nullptr) begin_to_abort(comm).wait_for(max_abort_time);
  throw NcclError(error_text(call, reason, device.location(), std::source_location::current()));
}

NcclHandle::NcclHandle(std::shared_ptr<Device> device, std::shared_ptr<CallWatchdog> watchdog, ncclComm_t comm,
                       std::string name, int reserved_blocks)
    : device_(std::move(device)),
      watchdog_(std::move(watchdog)),
      comm_(comm),
      name_(std::move(name)),
      stream_(device_, CudaStream::Priority::high),
      reserved_(device_->multiprocessors().reserve(reserved_blocks)) {
  run("ncclCommUserRank", [&] { return ncclCommUserRank(comm_, &rank_); });
  run("ncclCommCount", [&] { return ncclCommCount(comm_, &size_); });
  const auto text = [this] {
    const std::string operation = under_way();
    return operation.empty() ? "" : fmt::format("the group {}: {}", name_, operation);
  };
  watch_ =
      device_->watch({.check = [this] { poll(); },
                      .under_way = text,
                      .abandon = [this] { abandon(); },
                      .operations = [this] { return is_alive() ? cudaStreamQuery(stream_.handle()) : cudaSuccess; }});
}

NcclHandle::~NcclHandle() {
  // While an exception unwinds, the other ranks may never reach this point.
  if (std::uncaught_exceptions() > 0) device_->abandon();
  if (aborting_.valid()) aborting_.wait_until(aborted_since_ + max_abort_time);
  if (comm_ == nullptr) return;
  try {
    stream_.synchronize();
    run("ncclCommFinalize", [&] { return ncclCommFinalize(comm_); });
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
    throw NcclPeerError("the communicator {} was aborted after an earlier error; {}", name_,
                        to_string(device_->location()));
  }
}

void NcclHandle::run(const char* call, const std::function<ncclResult_t()>& function) {
  check_alive();
  const std::string text =
      fmt::format("{} on rank {} of {} of the group {}; {}", call, rank_, size_, name_, to_string(device_->location()));
  const CallWatchdog::Outcome outcome = watchdog_->run(comm_, device_->max_wait_s(), text, function);
  if (outcome.aborted) {
    comm_ = nullptr;
    give_up(call, *outcome.aborted, ncclRemoteError);
  }
  if (outcome.status != ncclSuccess) give_up(call, nccl_reason(outcome.status, comm_), outcome.status);
}

void NcclHandle::poll() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t status = ncclCommGetAsyncError(comm_, &state);
  if (status != ncclSuccess) state = status;
  if (state == ncclSuccess || state == ncclInProgress) return;
  const std::string operation = under_way();
  give_up(operation.empty() ? "a communicator without an operation under way" : operation, nccl_reason(state, comm_),
          state);
}

void NcclHandle::begin_after(const Event& before) { stream_.wait(before); }

std::shared_ptr<NcclHandle::Operation> NcclHandle::enqueued(std::string text) {
  auto operation = std::make_shared<Operation>(0, std::move(text), stream_.record());
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  device_->check(cudaStreamIsCapturing(stream_.handle(), &capture), "cudaStreamIsCapturing");
  // A recorded call is not in flight, and events cannot be queried during recording.
  if (capture != cudaStreamCaptureStatusNone) return operation;
  while (!operations_.empty() && operations_.front()->end->done()) operations_.pop_front();
  operation->number = operations_begun_++;
  return operations_.emplace_back(std::move(operation));
}

std::string NcclHandle::under_way() {
  for (const auto& operation : operations_) {
    bool done = false;
    try {
      done = operation->end->done();
    } catch (const CudaError&) {
      // The GPU itself has failed: no operation counts as complete.
    }
    if (!done) return fmt::format("{} (operation {} of the group)", operation->text, operation->number);
  }
  return "";
}

void NcclHandle::give_up(const std::string& what, const std::string& reason, ncclResult_t status) {
  abandon();
  device_->abandon();
  const std::string text = fmt::format("NCCL: {} failed on rank {} of {} of the group {}: {}; {}", what, rank_, size_,
                                       name_, reason, to_string(device_->location()));
  if (status == ncclInvalidArgument || status == ncclInvalidUsage) throw NcclError(text);
  throw NcclPeerError(text);
}

}  // namespace trireme::cuda
