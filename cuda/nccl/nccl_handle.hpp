#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>

#include "cuda/runtime/memory.hpp"

namespace trireme::cuda {

/// One NCCL communicator, with the stream its collectives run on and the names of those under way. Its calls do not
/// block: the host polls until they have taken effect, and any wait for the GPU detects NCCL's errors. An error aborts
/// all communicators of the GPU (ncclCommAbort), so that their kernels end.
class NcclHandle {
 public:
  /// Takes ownership of `comm` once it is complete.
  NcclHandle(std::shared_ptr<Device> device, ncclComm_t comm, std::string name);
  /// Collective on the orderly path; while an exception unwinds, the communicator is aborted.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  Device& device() const { return *device_; }
  std::shared_ptr<Device> shared_device() const { return device_; }
  ncclComm_t handle() const { return comm_; }
  CudaStream& stream() { return stream_; }

  /// Throws NcclError where the communicator was aborted before.
  void check_alive() const;
  /// Blocks until a call that was begun has taken effect; throws NcclError where it failed or takes too long.
  void settle(ncclResult_t status, const char* call);
  /// Throws NcclError where NCCL has reported an error.
  void poll();
  /// Keeps the name of the operation just enqueued until it is complete, unless it was recorded as part of a graph.
  /// Returns the event after it.
  std::shared_ptr<Event> enqueued(std::string operation);

 private:
  struct Operation {
    std::uint64_t number;
    std::string text;
    std::shared_ptr<Event> end;
  };
  /// The oldest operation in flight, for messages; empty where there is none.
  std::string under_way();
  /// Begins to abort the communicator: its operations end, whatever the other ranks do.
  void abandon();
  [[noreturn]] void give_up(const std::string& what, const std::string& reason);

  std::shared_ptr<Device> device_;
  ncclComm_t comm_;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  CudaStream stream_;
  std::deque<Operation> operations_;
  std::uint64_t operations_begun_ = 0;
  Device::Watch watch_;
  std::future<ncclResult_t> aborting_;
  std::chrono::steady_clock::time_point aborted_since_;
};

/// Waits until a communicator is made; `comm` may be null until then. Throws NcclError.
void wait_for_communicator(const Device& device, ncclResult_t status, const ncclComm_t* comm, const char* call);

}  // namespace trireme::cuda
