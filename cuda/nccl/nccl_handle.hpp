#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>

#include "cuda/nccl/call_watchdog.hpp"
#include "cuda/runtime/memory.hpp"

namespace trireme::cuda {

/// One NCCL communicator, with the stream of its collectives and the names of those in flight. A watchdog ends stuck
/// calls, and any wait for the GPU detects NCCL errors. An error aborts all communicators of the GPU (ncclCommAbort),
/// which ends their kernels.
class NcclHandle {
 public:
  /// Takes ownership of `comm`. Multiprocessors are reserved for `reserved_blocks` of its blocks.
  NcclHandle(std::shared_ptr<Device> device, std::shared_ptr<CallWatchdog> watchdog, ncclComm_t comm, std::string name,
             int reserved_blocks = 0);
  /// Collective on the orderly path; while an exception unwinds, the communicator is aborted.
  ~NcclHandle();
  NcclHandle& operator=(NcclHandle&&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  Device& device() const { return *device_; }
  std::shared_ptr<Device> shared_device() const { return device_; }
  std::shared_ptr<CallWatchdog> watchdog() const { return watchdog_; }
  ncclComm_t handle() const { return comm_; }
  CudaStream& stream() { return stream_; }

  bool is_alive() const { return comm_ != nullptr; }
  /// Throws NcclPeerError if the communicator was aborted before.
  void check_alive() const;
  /// Runs a call of NCCL with this communicator. Throws NcclPeerError if it failed or takes too long, NcclError if its
  /// arguments were refused.
  void run(const char* call, const std::function<ncclResult_t()>& function);
  /// Throws likewise if NCCL has reported an error.
  void poll();

  struct Operation {
    std::uint64_t number;
    std::string text;
    std::unique_ptr<Event> end;
  };
  void begin_after(const Event& before);
  /// Keeps the operation just enqueued until it is complete, unless it is part of a graph that is being recorded.
  std::shared_ptr<Operation> enqueued(std::string text);

 private:
  /// The oldest operation in flight, for messages; empty if none.
  std::string under_way();
  /// Begins to abort the communicator: its operations end regardless of other ranks.
  void abandon();
  [[noreturn]] void give_up(const std::string& what, const std::string& reason, ncclResult_t status);

  std::shared_ptr<Device> device_;
  std::shared_ptr<CallWatchdog> watchdog_;
  ncclComm_t comm_;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  CudaStream stream_;
  std::deque<std::shared_ptr<Operation>> operations_;
  std::uint64_t operations_begun_ = 0;
  Device::Watch watch_;
  Multiprocessors::Token reserved_;
  std::future<ncclResult_t> aborting_;
  std::chrono::steady_clock::time_point aborted_since_;
};

/// Joins the communicator of all `size` ranks. Collective. Throws NcclError.
ncclComm_t make_nccl_world(const Device& device, CallWatchdog& watchdog, int rank, int size, ncclUniqueId id,
                           ncclConfig_t config);

}  // namespace trireme::cuda
